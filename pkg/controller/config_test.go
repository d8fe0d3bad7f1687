package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

func TestConfigIsChecked(t *testing.T) {
	good := controller.Config{Name: "c", Reconciler: &script{}, Keys: noKeys}
	for name, tc := range map[string]struct {
		reason string
		change func(*controller.Config)
		field  string // "" if accepted
	}{
		"zero":       {"all optional fields have defaults", func(*controller.Config) {}, ""},
		"name":       {"required", func(c *controller.Config) { c.Name = "" }, "Config.Name"},
		"reconciler": {"required", func(c *controller.Config) { c.Reconciler = nil }, "Config.Reconciler"},
		"keys":       {"required", func(c *controller.Config) { c.Keys = nil }, "Config.Keys"},
		"workers":    {"negative", func(c *controller.Config) { c.Workers = -1 }, "Config.Workers"},
		"timeout":    {"negative", func(c *controller.Config) { c.ReconcileTimeout = -1 }, "Config.ReconcileTimeout"},
		"shutdown":   {"negative", func(c *controller.Config) { c.ShutdownTimeout = -1 }, "Config.ShutdownTimeout"},
		"base":       {"negative", func(c *controller.Config) { c.RetryBaseDelay = -1 }, "Config.RetryBaseDelay"},
		"max":        {"negative", func(c *controller.Config) { c.RetryMaxDelay = -1 }, "Config.RetryMaxDelay"},
		"recheck":    {"negative", func(c *controller.Config) { c.TerminalRecheck = -1 }, "Config.TerminalRecheck"},
		"qps":        {"negative", func(c *controller.Config) { c.RetryQPS = -1 }, "Config.RetryQPS"},
		"burst":      {"negative", func(c *controller.Config) { c.RetryBurst = -1 }, "Config.RetryBurst"},
		"cap below":  {"makes no sense", func(c *controller.Config) { c.RetryBaseDelay, c.RetryMaxDelay = 2, 1 }, "Config.RetryMaxDelay"},
		"short cap":  {"the default base follows it down", func(c *controller.Config) { c.RetryMaxDelay = time.Millisecond }, ""},
		"long base":  {"the default cap follows it up", func(c *controller.Config) { c.RetryBaseDelay = time.Hour }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			_, err := controller.New(cfg)
			if tc.field == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("%s: error %v does not name %s", tc.reason, err, tc.field)
			}
		})
	}
}
