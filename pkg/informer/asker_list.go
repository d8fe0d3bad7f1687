package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// pageSize is how many objects an audit asks for at once.
	pageSize = 500
	// pageTimeout bounds the wait for one page.
	pageTimeout = 30 * time.Second
)

// listing is what the API server holds at resourceVersion.
type listing struct {
	resourceVersion string
	objects         map[cache.ObjectName]mark
}

// list lists everything as it is now, or later: never a state that was superseded
// before it was called (resourceVersion "", one snapshot for all pages). Of each
// object it keeps what a mark holds.
func (a *asker) list(ctx context.Context) (*listing, error) {
	for try := 0; ; try++ {
		all, err := a.pages(ctx)
		// A continue token lasts 5 min or so.
		if err == nil || try > 0 || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			if err != nil {
				return nil, fmt.Errorf("list the metadata of %s: %w", a.resource.GroupResource(), err)
			}
			a.hearing.sized(a, len(all.objects))
			return all, nil
		}
	}
}

func (a *asker) pages(ctx context.Context) (*listing, error) {
	all := &listing{objects: map[cache.ObjectName]mark{}}
	for namespace, token := "", ""; ; {
		page, err := a.page(ctx, token)
		if err != nil {
			return nil, err
		}
		if token == "" {
			all.resourceVersion = page.ResourceVersion
		}
		before := len(all.objects)
		for n := range page.Items {
			o := &page.Items[n]
			if o.Namespace != namespace {
				namespace = o.Namespace // of one string for many objects
			}
			all.objects[cache.NewObjectName(namespace, o.Name)] = mark{types.UID(o.UID), o.ResourceVersion, o.Generation}
		}
		if token = page.Continue; token == "" {
			return all, all.check()
		}
		if len(all.objects) == before {
			return nil, errRepeated
		}
	}
}

// errRepeated is for a server that gives a token for the next page and does not know it.
var errRepeated = errors.New("the list does not come to its end: a page of it brings nothing new")

// check refuses a list whose revision says nothing about its objects. Everything might
// be deleted then, or the API server be set back.
func (l *listing) check() error {
	if l.resourceVersion == "" || l.resourceVersion == "0" {
		return fmt.Errorf("the list has the resourceVersion %q, which is none", l.resourceVersion)
	}
	for key, m := range l.objects {
		if below(l.resourceVersion, m.resourceVersion) {
			return fmt.Errorf("the list has the resourceVersion %s and in it %s of %s", l.resourceVersion, key, m.resourceVersion)
		}
	}
	return nil
}

// page lists one page, on a fresh connection if the process's is dead.
func (a *asker) page(ctx context.Context, token string) (*metav1.PartialObjectMetadataList, error) {
	old := a.hearing.current()
	page, err := a.tryPage(ctx, old, token)
	if err == nil || ctx.Err() != nil || answered(err) {
		return page, err
	}
	fresh, linkErr := newLink(a.hearing.config)
	if linkErr != nil {
		return nil, linkErr
	}
	if page, err = a.tryPage(ctx, fresh, token); err != nil && !answered(err) {
		fresh.close()
		return nil, err
	}
	a.hearing.replace(old, fresh)
	return page, err
}

// answered reports whether an error is the API server's own.
func answered(err error) bool {
	_, noAnswer := failed(err)
	return noAnswer == nil
}

func (a *asker) tryPage(ctx context.Context, l *link, token string) (*metav1.PartialObjectMetadataList, error) {
	if err := a.hearing.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	page := &metav1.PartialObjectMetadataList{}
	return page, a.request(l, &metav1.ListOptions{Limit: pageSize, Continue: token}, "PartialObjectMetadataList").Do(ctx).Into(page)
}
