package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// reference is what the others are compared with.
const reference = "client-go"

// contestants in the order in which they take turns.
var contestants = []string{reference, "steadwatch", hearing}

// hearing is steadwatch with the record of what was delivered, as cmd/controller
// runs it.
const hearing = "steadwatch, hearing"

// measured is what one run took, from before the informer was made until it had
// synced and told its handler of every object.
type measured struct {
	Wall, CPU time.Duration
	// PeakRSS is the process's, and Heap what is left after a collection, in bytes.
	PeakRSS, Heap float64
}

// contest fills one local copy.
func contest(ctx context.Context, as, kubeconfig string, o options) (measured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not synced within -timeout=%s", o.timeout))
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return measured{}, err
	}
	began, cpu := time.Now(), usage()
	var ears *informer.Hearing
	var connection *informer.Connection
	if as == hearing {
		if ears, err = informer.NewHearing(informer.HearingConfig{Config: config}); err != nil {
			return measured{}, err
		}
		connection = informer.NewConnection(config)
		config = connection.Config()
	}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return measured{}, err
	}
	var told atomic.Int64
	handler := cache.TypedResourceEventHandlerDetailedFuncs[*networking.ApplicationRoute]{
		AddFunc: func(*networking.ApplicationRoute, bool) { told.Add(1) },
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var synced cache.DoneChecker
	var store cache.Store
	switch as {
	case reference:
		routes := clients.NetworkingV1alpha1().ApplicationRoutes("")
		// As generated informers are made.
		i := cache.NewTypedSharedIndexInformer[*networking.ApplicationRoute](cache.NewSharedIndexInformer(
			cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (apiruntime.Object, error) {
					return routes.List(ctx, opts)
				},
				WatchFuncWithContext: routes.Watch,
			}, clients),
			&networking.ApplicationRoute{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
		registration, err := i.AddTypedEventHandler(handler)
		if err != nil {
			return measured{}, err
		}
		store, synced = i.GetStore(), registration.HasSyncedChecker()
		running.Go(func() { i.RunWithContext(ctx) })
	case "steadwatch", hearing:
		i, err := informer.New(informer.Config[*networking.ApplicationRoute]{
			Resource:      networking.SchemeGroupVersion.WithResource("applicationroutes"),
			ListerWatcher: informer.Tolerant(clients.NetworkingV1alpha1().RESTClient()),
			Hearing:       ears,
			Connection:    connection,
		})
		if err != nil {
			return measured{}, err
		}
		registration, err := i.AddHandler(handler)
		if err != nil {
			return measured{}, err
		}
		store, synced = i.Indexer(), registration.HasSyncedChecker()
		running.Go(func() { _ = i.Run(ctx) })
	default:
		return measured{}, fmt.Errorf("no contestant is called %q", as)
	}
	if !cache.WaitFor(ctx, "the copy", synced) {
		return measured{}, context.Cause(ctx)
	}
	m := measured{Wall: time.Since(began), CPU: usage() - cpu}
	if got, stored := int(told.Load()), len(store.ListKeys()); got != o.good() || stored != o.good() {
		return measured{}, fmt.Errorf("%s: %d objects in the store, %d told, want %d", as, stored, got, o.good())
	}
	if m.PeakRSS, err = peakRSS(); err != nil {
		return measured{}, err
	}
	runtime.GC()
	runtime.GC() // what sync.Pools held
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.Heap = float64(mem.HeapAlloc)
	runtime.KeepAlive(store)
	return m, nil
}

// peakRSS is in bytes. (Rusage.Maxrss is not below that of the parent.)
func peakRSS() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes float64
	_, err = fmt.Sscan(rest, &kilobytes)
	return kilobytes * 1024, err
}

// usage is the CPU time of the process so far.
func usage() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // not with these arguments
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
