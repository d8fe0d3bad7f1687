package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// servers are the listeners of this process. They are opened before anything
// else, so that an address in use is refused at start, and served before caches
// are filled: a webhook or a probe may be what that waits for.
type servers struct {
	open    []*http.Server
	serving sync.WaitGroup
}

// listen opens the address that a flag gives and serves handler there. A disabled
// address is no error.
func (s *servers) listen(ctx context.Context, flag, address string, handler http.Handler) error {
	if disabled(address) {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return &flagError{flag, address, fmt.Sprintf("%v; give another address, or 0 to disable it", reason(err))}
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.open = append(s.open, server)
	s.serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Server ended", "flag", flag, "address", address)
		}
	})
	klog.FromContext(ctx).Info("Serving", "flag", flag, "address", listener.Addr().String())
	return nil
}

// reason leaves out what the flag says already.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// close ends the servers and waits for requests under way, for a moment: a
// profile may take longer.
func (s *servers) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, server := range s.open {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}
	s.serving.Wait()
}

// debugHandler serves what is known about the queues and the local copies, and
// Go's profiles.
//
//	GET  /debug/queue[?controller=&limit=&after=namespace/name&format=text&skip=]
//	POST /debug/queue/retry?key=namespace/name[&controller=]
//	GET  /debug/informers
//	GET  /debug/quarantine[?resource=&limit=&after=namespace/name&format=text]
//	GET  /debug/pprof/
func debugHandler(informers []metrics.Informer, quarantines []quarantineSource, controllers map[string]*controller.Controller) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/informers", func(w http.ResponseWriter, _ *http.Request) {
		snapshots := make([]informer.Snapshot, 0, len(informers))
		for _, i := range informers {
			snapshots = append(snapshots, i.Snapshot())
		}
		writeJSON(w, snapshots)
	})
	mux.HandleFunc("GET /debug/quarantine", quarantineHandler(quarantines))
	mux.HandleFunc("GET /debug/queue", queueHandler(controllers))
	mux.HandleFunc("POST /debug/queue/retry", retryHandler(controllers))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v)
}
