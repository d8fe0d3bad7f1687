package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steadwatch/steadwatch/hack/install"
)

// sight is something new in what the product says about itself.
type sight struct {
	at      time.Time
	replica string
	kind    sightKind
	subject string // the resource
	what    string // its state, the reason of a restart of its watch
}

type sightKind int

const (
	stateSight   sightKind = iota // an informer's state
	restartSight                  // an informer has done something about its watch
	canarySight                   // the canary's state
	rewindSight                   // the canary's Lease has gone back
	healthSight                   // /healthz is not 200; what names the checks
	readySight                    // /readyz is not 200 after it has been
)

// observer looks at every replica again and again.
type observer struct {
	mu     sync.Mutex
	sights []sight
}

func (o *observer) add(s sight) {
	s.at = time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights = append(o.sights, s)
}

// informerView is what /debug/informers says of one.
type informerView struct {
	Resource string            `json:"resource"`
	State    string            `json:"state"`
	Reason   string            `json:"reason"`
	Objects  int               `json:"objects"`
	Restarts map[string]uint64 `json:"restarts"`
}

// informers is nil where the process does not answer.
func (r *replica) informers(ctx context.Context) []informerView {
	var views []informerView
	if code, body := fetch(ctx, 2*time.Second, r.where().Debug, "/debug/informers"); code == http.StatusOK {
		_ = json.Unmarshal([]byte(body), &views)
	}
	return views
}

var canaryState = regexp.MustCompile(`(?m)^steadwatch_canary_state\{[^}]*state="([^"]+)"[^}]*\} 1$`)

var rewinds = regexp.MustCompile(`(?m)^steadwatch_canary_rewinds_total [1-9]`)

// watch looks at one replica until ctx ends. What a new process says is compared with
// nothing.
func (o *observer) watch(ctx context.Context, r *replica, every time.Duration) {
	last := map[string]string{}
	restarts := map[string]uint64{}
	var seen install.Addresses
	tick := time.NewTicker(every)
	defer tick.Stop()
	changed := func(kind sightKind, subject, what string) {
		key := fmt.Sprint(kind, " ", subject)
		if last[key] != what {
			last[key] = what
			o.add(sight{replica: r.name, kind: kind, subject: subject, what: what})
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a := r.where()
		if a == (install.Addresses{}) {
			continue
		}
		if a != seen {
			seen = a
			clear(restarts)
		}
		for _, v := range r.informers(ctx) {
			changed(stateSight, v.Resource, strings.TrimSpace(v.State+" "+v.Reason))
			for reason, n := range v.Restarts {
				key := v.Resource + "\x00" + reason
				for ; restarts[key] < n; restarts[key]++ {
					o.add(sight{replica: r.name, kind: restartSight, subject: v.Resource, what: reason})
				}
			}
		}
		if code, body := fetch(ctx, 2*time.Second, a.Metrics, "/metrics"); code == http.StatusOK {
			if m := canaryState.FindStringSubmatch(body); m != nil {
				changed(canarySight, "", m[1])
			}
			if rewinds.MatchString(body) {
				changed(rewindSight, "", "rewound")
			}
		}
		switch code, body := fetch(ctx, 2*time.Second, a.Health, "/healthz?verbose"); code {
		case http.StatusOK:
			changed(healthSight, "", "")
		case http.StatusServiceUnavailable:
			changed(healthSight, "", failing(code, body))
		}
		if code, body := fetch(ctx, 2*time.Second, a.Health, "/readyz?verbose"); code == http.StatusOK {
			changed(readySight, "", "")
		} else if _, was := last[fmt.Sprint(readySight, " ")]; was && code == http.StatusServiceUnavailable {
			changed(readySight, "", failing(code, body))
		}
	}
}

// between are the sights of a span of time.
func (o *observer) between(from, to time.Time) []sight {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []sight
	for _, s := range o.sights {
		if !s.at.Before(from) && s.at.Before(to) {
			out = append(out, s)
		}
	}
	return out
}

// well reports whether what names a state without a fault.
func well(s sight) bool {
	switch s.kind {
	case stateSight:
		return s.what == "synced" || s.what == "hearing" || s.what == "starting"
	case canarySight:
		return s.what == "hearing" || s.what == "pending" || s.what == "standby"
	default:
		return s.what == ""
	}
}

// heard condenses sights to what was said first, when, by how many informers, and how
// often a watch was restarted for what reason.
func heard(sights []sight, since time.Time) string {
	type first struct {
		text     string
		at       time.Time
		n        int
		subjects map[string]bool
	}
	var order []*first
	byText := map[string]*first{}
	for _, s := range sights {
		if well(s) {
			continue
		}
		text := s.what
		switch s.kind {
		case restartSight:
			text = "reopened (" + s.what + ")"
		case canarySight:
			text = "canary " + s.what
		case rewindSight:
			text = "canary: etcd was set back"
		case healthSight:
			text = "/healthz 503 (" + s.what + ")"
		case readySight:
			text = "/readyz 503 (" + s.what + ")"
		}
		f := byText[text]
		if f == nil {
			f = &first{text: text, at: s.at, subjects: map[string]bool{}}
			byText[text], order = f, append(order, f)
		}
		f.n++
		if s.subject != "" {
			name, _, _ := strings.Cut(s.subject, ".")
			f.subjects[name] = true
		}
	}
	slices.SortStableFunc(order, func(a, b *first) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	var parts []string
	for _, f := range order {
		text := fmt.Sprintf("%s after %s", f.text, round(f.at.Sub(since)))
		if len(f.subjects) > 0 {
			names := make([]string, 0, len(f.subjects))
			for name := range f.subjects {
				names = append(names, name)
			}
			slices.Sort(names)
			if len(names) > 3 {
				names = []string{fmt.Sprintf("%d kinds", len(names))}
			}
			text = strings.Join(names, ", ") + " " + text
		}
		if f.n > max(1, len(f.subjects)) {
			text += fmt.Sprintf(", %d times", f.n)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

func round(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

var leading = regexp.MustCompile(`(?m)^leader_election_master_status\{[^}]*\} 1$`)
