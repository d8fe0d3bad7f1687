package informer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestNewHearing(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1", Timeout: time.Second, QPS: 1, Burst: 1}
	for name, test := range map[string]struct {
		reason string
		config HearingConfig
		err    string // part of it
		want   [3]time.Duration
	}{
		"no config":     {reason: "there is nothing to ask", config: HearingConfig{}, err: "HearingConfig.Config is nil"},
		"own transport": {reason: "its connections cannot be closed one by one", config: HearingConfig{Config: &rest.Config{Transport: http.DefaultTransport}}, err: "HearingConfig.Config has a Transport"},
		"too often":     {reason: "500 where 500ms was meant, and the reverse, are found at once", config: HearingConfig{Config: config, AuditInterval: 500}, err: "HearingConfig.AuditInterval is 500ns: use a second or more, 0 for 5m0s"},
		"not reachable": {reason: "what rest.Config refuses is said with the field", config: HearingConfig{Config: &rest.Config{Host: "https://x:y:z"}}, err: "use HearingConfig.Config"},
		"zero":          {reason: "the defaults", config: HearingConfig{Config: config}, want: [3]time.Duration{30 * time.Second, 5 * time.Minute, 15 * time.Second}},
		"off":           {reason: "negative is off", config: HearingConfig{Config: config, ProbeAfter: -1, AuditInterval: -1, PollInterval: -time.Hour}},
		"as asked for":  {reason: "down to a second", config: HearingConfig{Config: config, ProbeAfter: 3 * time.Second, AuditInterval: time.Hour, PollInterval: time.Second}, want: [3]time.Duration{3 * time.Second, time.Hour, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := NewHearing(test.config)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", test.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := [3]time.Duration{h.probeAfter, h.auditInterval, h.pollInterval}; got != test.want {
				t.Errorf("%s: %v, want %v", test.reason, got, test.want)
			}
			if h.config.Timeout != 0 || h.config.UserAgent != hearingUserAgent || config.UserAgent != "" {
				t.Errorf("config: %+v", h.config)
			}
		})
	}
}

// Audits are spread, and rarer where they would list more than 200 objects a second.
func TestAuditAfter(t *testing.T) {
	h, err := NewHearing(HearingConfig{Config: &rest.Config{Host: "https://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	between := func(reason string, interval time.Duration) {
		t.Helper()
		seen := map[time.Duration]bool{}
		for range 100 {
			after := h.auditAfter()
			seen[after] = true
			if after < interval*9/10 || after > interval*11/10 {
				t.Fatalf("%s: %s, want %s give or take 10 %%", reason, after, interval)
			}
		}
		if len(seen) < 50 {
			t.Errorf("%s: only %d different ones of 100", reason, len(seen))
		}
	}
	a, b := h.newAsker(widgets, ""), h.newAsker(widgets, "other")
	between("nothing listed yet", 5*time.Minute)
	h.sized(a, 50_000)
	between("50,000 objects take 250 s", 5*time.Minute)
	h.sized(b, 50_000)
	between("all informers together", 500*time.Second)
	h.sized(a, 20_000)
	between("as of the last audit", 350*time.Second)
	h.forget(b)
	between("one that has stopped", 5*time.Minute)
}

func TestAuditNow(t *testing.T) {
	h, err := NewHearing(HearingConfig{Config: &rest.Config{Host: "https://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	var first, second []string
	cancel := h.subscribe(func(reason string) { first = append(first, reason) })
	defer h.subscribe(func(reason string) { second = append(second, reason) })()
	h.AuditNow("canary late")
	cancel()
	h.AuditNow("lease set back")
	if len(first) != 1 || len(second) != 2 || second[1] != "lease set back" {
		t.Errorf("%q, %q", first, second)
	}
}
