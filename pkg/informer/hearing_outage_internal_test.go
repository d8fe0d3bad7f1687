package informer

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An API server in a black hole: nothing is refused, nothing is answered, and no
// connection ends. The state says so within a minute and for as long as it lasts, and
// it is over when the API server is back, whatever was under way.
func TestBlackHoleIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		set    func(a *fakeAPI, on bool)
		config HearingConfig
		named  time.Duration
		lasts  time.Duration
		alive  bool // the connection of the watch survives it
	}{
		"attempts time out":        {"what is sent is dropped", func(a *fakeAPI, on bool) { a.down = on }, HearingConfig{}, time.Minute, 30 * time.Minute, false},
		"attempts hang":            {"something accepts connections and says nothing", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{}, time.Minute, 30 * time.Minute, false},
		"attempts hang, shortly":   {"the watch of before is still open then", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{}, time.Minute, 3 * time.Minute, false},
		"attempts hang, and go on": {"TCP sends again what was lost", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{}, time.Minute, 3 * time.Minute, true},
		"without questions":        {"the audit is what finds it", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{ProbeAfter: -1}, 7 * time.Minute, 30 * time.Minute, false},
		"without anything":         {"the timeout of the watch is", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{ProbeAfter: -1, AuditInterval: -1, PollInterval: -1}, 12 * time.Minute, 30 * time.Minute, false},
		"without polling":          {"nothing else reopens a watch", func(a *fakeAPI, on bool) { a.hole = on }, HearingConfig{PollInterval: -1}, time.Minute, 30 * time.Minute, false},
		"while a change is missed": {"the last news before it", func(a *fakeAPI, on bool) { a.hole = on; a.noMarks = on }, HearingConfig{}, time.Minute, 30 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, test.config, a, func(i *heardInformer) {
				a.with(func(a *fakeAPI) { test.set(a, true) })
				i.within(test.named, test.reason, func() bool { return i.Snapshot().Reason == Unreachable })
				for end := time.Now().Add(test.lasts); time.Now().Before(end); i.wait(time.Second) {
					if s := i.Snapshot(); s.State != StateUnlistable || s.Reason != Unreachable || s.Message == "" {
						t.Fatalf("%s before the end: %q %q %q", time.Until(end), s.State, s.Reason, s.Message)
					}
				}
				if n := strings.Count(i.log(), "Cannot list or watch"); n < 1 || n > 4 {
					t.Errorf("said %d times in half an hour", n)
				}
				a.put("x")
				if !test.alive {
					a.freezeOpen()
				}
				a.with(func(a *fakeAPI) { test.set(a, false) })
				i.within(3*time.Minute, "what has happened meanwhile", i.current)
				i.within(time.Minute, "well again", func() bool { return i.Snapshot().State == StateHearing })
				if !strings.Contains(i.log(), "Can list and watch again") {
					t.Error("its end is not said")
				}
			})
		})
	}
}

// A watch that is refused after the Reflector was given it: by an API server, or a
// proxy, that takes its time.
func TestWatchRefusedLate(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want Reason
	}{
		"no permission":  {apierrors.NewForbidden(widgets.GroupResource(), "", nil), Forbidden},
		"bad gateway":    {apierrors.NewGenericServerResponse(http.StatusBadGateway, "get", widgets.GroupResource(), "", "", 0, true), ServerError},
		"throttled":      {apierrors.NewTooManyRequests("later", 1), Throttled},
		"not answered":   {errNotAnswered, Unreachable},
		"no second view": {errNoAnswer, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, HearingConfig{AuditInterval: -1, ProbeAfter: -1}, a, func(i *heardInformer) {
				i.wait(time.Minute)
				before := a.counts()
				a.with(func(a *fakeAPI) {
					a.refuse = func(kind string) error {
						if kind == "watch" {
							time.Sleep(7 * time.Second)
							return test.err
						}
						return nil
					}
					for _, s := range a.streams {
						s.cancel()
					}
				})
				i.within(20*time.Second, "the state", func() bool { return i.Snapshot().Reason == test.want })
				for range 300 {
					i.wait(time.Second)
					if s := i.Snapshot(); s.Reason != test.want {
						t.Fatalf("%q %q %q", s.State, s.Reason, s.Message)
					}
				}
				most := 60
				if test.want == Throttled {
					most = 20
				}
				if n := a.count("watch") - before["watch"]; n > most {
					t.Errorf("%d watches in 5 min", n)
				}
				a.put("x")
				a.with(func(a *fakeAPI) { a.refuse = nil })
				i.within(90*time.Second, "well again", func() bool { return i.Snapshot().State == StateHearing && i.current() })
			})
		})
	}
}

// A list that nothing answers, on a connection that nothing ends: client-go waits for
// ever.
func TestListIsBounded(t *testing.T) {
	for name, away := range map[string]bool{"black hole": true, "that request alone": false} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			a.hole, a.hangs = away, "list"
			a.refuse = only("watchlist", apierrors.NewBadRequest("sendInitialEvents is forbidden for watch"))
			hearInBubble(t, HearingConfig{}, a, func(i *heardInformer) {
				if away {
					i.within(time.Minute, "the state", func() bool { return i.Snapshot().Reason == Unreachable })
				}
				i.wait(2 * time.Minute)
				a.with(func(a *fakeAPI) { a.hole, a.hangs, a.refuse = false, "", nil })
				i.within(listTimeout+time.Minute, "the copy", i.current)
				i.within(time.Minute, "well", func() bool { return i.Snapshot().State == StateHearing })
			})
		})
	}
}

// What fails for another reason does not change the state. It is told all the same.
func TestFailingChecksAreTold(t *testing.T) {
	refuse := apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
	for name, test := range map[string]struct {
		config  HearingConfig
		set     func(*fakeAPI)
		state   State
		message string
	}{
		"questions": {HearingConfig{}, func(a *fakeAPI) { a.refuseQuestions = refuse }, StateHearing, "questions fail: widgets.example.com is forbidden"},
		"audits":    {HearingConfig{}, func(a *fakeAPI) { a.refuse = only("audit", refuse) }, StateHearing, "audits fail: widgets.example.com is forbidden"},
		"polling": {HearingConfig{}, func(a *fakeAPI) {
			a.frozen, a.mute, a.refuse = true, true, only("get", refuse)
		}, StatePolling, "; polls fail: widgets.example.com is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newFakeAPI()
			a.put("x")
			hearInBubble(t, test.config, a, func(i *heardInformer) {
				a.with(test.set)
				a.freezeOpen()
				if test.state == StatePolling {
					a.put("x")
				}
				told := func() bool { return strings.Contains(i.Snapshot().Message, test.message) }
				i.within(6*time.Minute, "the message", told)
				began := time.Now()
				for time.Since(began) < 25*time.Minute {
					i.wait(10 * time.Second)
					if s := i.Snapshot(); s.State != test.state || s.Reason != "" || name != "questions" && !told() {
						t.Fatalf("%q %q %q", s.State, s.Reason, s.Message)
					}
				}
				if n := strings.Count(i.log(), "Cannot make sure that nothing is missed"); n < 1 || n > 3 {
					t.Errorf("logged %d times in 25 min", n)
				}
				a.with(func(a *fakeAPI) { a.frozen, a.mute, a.refuse, a.refuseQuestions = false, false, nil, nil })
				i.within(6*time.Minute, "all is well again", func() bool { s := i.Snapshot(); return s.State == StateHearing && s.Message == "" })
				if n := strings.Count(i.log(), "Can make sure again"); n != 1 {
					t.Errorf("its end is logged %d times", n)
				}
			})
		})
	}
}

// One that fails now and then is no news each time.
func TestFlappingChecksAreBounded(t *testing.T) {
	a := newFakeAPI()
	a.put("x")
	hearInBubble(t, HearingConfig{AuditInterval: time.Minute}, a, func(i *heardInformer) {
		for n := range 60 {
			a.with(func(a *fakeAPI) {
				if a.refuse = nil; n%2 == 0 {
					a.refuse = only("audit", apierrors.NewTooManyRequests("later", 1))
				}
			})
			i.wait(time.Minute)
		}
		if n := strings.Count(i.log(), "Cannot make sure"); n < 1 || n > 7 {
			t.Errorf("logged %d times in an hour", n)
		}
	})
}

func only(kind string, err error) func(string) error {
	return func(k string) error {
		if k == kind {
			return err
		}
		return nil
	}
}
