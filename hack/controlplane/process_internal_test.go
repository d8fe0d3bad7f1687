package controlplane

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPortTakenBetweenChoiceAndUse: both servers have to say so in a way that
// is understood, and Start's loop has to go on to other ports.
func TestPortTakenBetweenChoiceAndUse(t *testing.T) {
	t.Parallel()
	c := ForTest(t, Config{})
	e, err := newEtcd(c.bin.path("etcd"), &Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.newAPIServer("kube-apiserver-x")
	if err != nil {
		t.Fatal(err)
	}
	for address, s := range map[string]*server{e.url: &e.server, a.url: &a.server} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		err = withFreshPorts(func() error {
			if tries++; tries == 2 {
				_ = l.Close() // as good as another port
			}
			err := s.start(t.Context())
			if tries == 1 && !errors.Is(err, errPortTaken) {
				t.Errorf("start on a taken port: %v", err)
			}
			return err
		})
		if err != nil || tries != 2 {
			t.Errorf("%s after %d tries: %v", address, tries, err)
		}
	}
	a.kill()
	e.kill()
}

func TestErrNamesTheProcessThatDied(t *testing.T) {
	t.Parallel()
	c := ForTest(t, Config{})
	defer c.Stop()
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.etcd.proc.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.etcd.proc.done:
	case <-time.After(30 * time.Second):
		t.Fatal("etcd survives SIGKILL")
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "etcd ended early (signal: killed)") {
		t.Errorf("Err() = %v", err)
	}
	// The failure has been looked at; the cleanup need not fail the test for it.
	c.etcd.proc.asked = true
}
