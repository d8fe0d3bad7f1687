package webapp_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// Five others change their finalizers 1,000 times (200 in the short form) while ours comes, goes because one
// of them throws it out, comes back, and goes for good. What each of them has left is
// there in the end, and nothing else.
func TestOtherFinalizersSurvive(t *testing.T) {
	const actors = 5
	// By each actor: adds and removes before the deletion, leaving after it.
	adds, removes, leaving := 22, 14, 4
	if os.Getenv("STEADWATCH_LONG") == "1" { // half a minute
		adds, removes, leaving = 110, 70, 20
	}
	changes := actors * (adds + removes + leaving)
	w := newWorld(t)
	p := w.start(options{})
	w.create(newApp("web", drainIn(0), func(a *v1alpha1.WebApp) { a.Finalizers = []string{"example.com/keep"} }))
	eventually(t, "our finalizer", func() (bool, string) {
		f := w.app("web").Finalizers
		return slices.Contains(f, v1alpha1.Finalizer), fmt.Sprint(f)
	})
	client := w.platform.PlatformV1alpha1().WebApps(w.namespace)
	var mu sync.Mutex
	changed, conflicts, thrownOut := 0, 0, 0
	// change applies f to the finalizers until nobody was quicker.
	change := func(f func(*[]string)) {
		for t.Context().Err() == nil {
			app, err := client.Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			f(&app.Finalizers)
			_, err = client.Update(t.Context(), app, metav1.UpdateOptions{})
			mu.Lock()
			if err == nil {
				changed++
				mu.Unlock()
				return
			}
			conflicts++
			mu.Unlock()
			if !apierrors.IsConflict(err) {
				t.Error(err)
				return
			}
		}
	}
	// insert puts one before all others, so that ours moves, as others who write often
	// do it: without a look at what is there.
	insert := func(name string) {
		patch := fmt.Sprintf(`[{"op":"add","path":"/metadata/finalizers/0","value":%q}]`, name)
		if _, err := client.Patch(t.Context(), "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		changed++
	}
	without := func(all []string, name string) []string {
		return slices.DeleteFunc(all, func(f string) bool { return f == name })
	}
	left := make([][]string, actors) // of each actor, what it has put there and not removed
	all := func(f func(actor int)) {
		var acting sync.WaitGroup
		for actor := range actors {
			acting.Go(func() { f(actor) })
		}
		acting.Wait()
	}
	began := time.Now()
	all(func(actor int) {
		for n := range adds + removes {
			if n >= 2*removes || n%2 == 0 {
				name := fmt.Sprintf("example.com/%d-%d", actor, n)
				insert(name)
				left[actor] = append(left[actor], name)
			} else {
				name := left[actor][0]
				left[actor] = left[actor][1:]
				change(func(f *[]string) { *f = without(*f, name) })
			}
			if actor == 0 && n%12 == 11 {
				change(func(f *[]string) { *f = without(*f, v1alpha1.Finalizer) })
				mu.Lock()
				changed-- // not of theirs
				thrownOut++
				mu.Unlock()
			}
		}
	})
	eventually(t, "our finalizer to come back", func() (bool, string) {
		f := w.app("web").Finalizers
		return slices.Contains(f, v1alpha1.Finalizer), fmt.Sprint(f)
	})
	w.delete("web", metav1.DeleteOptions{})
	all(func(actor int) {
		for range leaving {
			name := left[actor][0]
			left[actor] = left[actor][1:]
			change(func(f *[]string) { *f = without(*f, name) })
		}
	})
	if changed != changes || len(left[0]) == 0 {
		t.Fatalf("%d changes, want %d", changed, changes)
	}
	want := append(slices.Concat(left...), "example.com/keep")
	slices.Sort(want)
	eventually(t, "our finalizer to be gone, and only ours", func() (bool, string) {
		got := slices.Sorted(slices.Values(w.app("web").Finalizers))
		return slices.Equal(got, want), fmt.Sprintf("%v, want %v", got, want)
	})
	p.idle(t)
	ours := slices.DeleteFunc(p.requests.written(), func(r string) bool { return !strings.HasPrefix(r, "PATCH webapps/web") })
	t.Logf("%d changes by %d others in %s, %d of them tried again; ours was thrown out %d times; %d patches of ours", changed, actors, time.Since(began).Round(time.Millisecond), conflicts, thrownOut, len(ours))
	w.removeFinalizers("web")
	w.gone("web")
}
