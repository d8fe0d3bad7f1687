package main

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// jsonLogger writes one JSON object a line. The handler has to filter by -v
// itself, which contextual loggers do not pass through klog for: at V(8) client-go
// logs the bodies of requests, Secrets' too.
func jsonLogger(w io.Writer, verbosity string) klog.Logger {
	v, err := strconv.Atoi(verbosity)
	if err != nil {
		v = 0
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: slog.Level(-v),
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			// logr hands V(4) on as the level -4, which slog calls DEBUG.
			if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && level < slog.LevelInfo {
				return slog.Int("v", -int(level))
			}
			return a
		},
	}))
}
