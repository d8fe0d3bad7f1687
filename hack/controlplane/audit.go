package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const auditPolicyFile = "audit-policy.yaml"

// Every request at every stage: a watch, for instance, is seen when it starts
// and when it ends.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
`

func writeAuditPolicy(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, auditPolicyFile), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	return nil
}

// Stages of a request in the audit log. Watches have StageResponseStarted too.
const (
	StageRequestReceived  = "RequestReceived"
	StageResponseStarted  = "ResponseStarted"
	StageResponseComplete = "ResponseComplete"
	StagePanic            = "Panic"
)

// AuditEvent is one stage of one request.
type AuditEvent struct {
	Server  string // name of the API server
	AuditID string // the same for all stages of a request

	Stage      string
	Verb       string // get, list, watch, create, update, patch, delete, …; for other paths the HTTP method in lower case
	RequestURI string
	User       string
	UserAgent  string
	// Resource to Name are empty for requests that name no object, such as
	// /version; Name is also empty for creates and lists.
	Group, Resource, Subresource, Namespace, Name string
	// Code is the HTTP status; 0 at StageRequestReceived.
	Code int
	// RequestReceived is when the request arrived, StageTimestamp when it
	// reached Stage. Microseconds.
	RequestReceived, StageTimestamp time.Time
}

// auditReader holds what has been read of each server's log.
type auditReader struct {
	mu     sync.Mutex
	read   map[string]int64 // offset by server
	events []AuditEvent
}

// Audit returns the events for which filter is true (nil: all), in the order
// in which they were logged, server by server. Every request that has been
// answered before the call is complete in it: Audit sends each running server a
// request of its own, which is left out, and waits until that one and all
// before it, save watches, have been logged. It needs Config.Audit.
func (c *ControlPlane) Audit(ctx context.Context, filter func(AuditEvent) bool) ([]AuditEvent, error) {
	if !c.cfg.Audit {
		return nil, errors.New("audit: Config.Audit is not set")
	}
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	for _, a := range c.apiServers() {
		if err := c.flush(ctx, a); err != nil {
			return nil, fmt.Errorf("audit of %s: %w", a.name, err)
		}
	}
	var events []AuditEvent
	for _, e := range c.audit.events {
		if !strings.HasPrefix(e.RequestURI, markerPath) && (filter == nil || filter(e)) {
			events = append(events, e)
		}
	}
	return events, nil
}

const markerPath = "/version?steadwatch-audit-marker="

// flush reads a server's log to its end, which for a running server is a
// request sent by flush itself.
func (c *ControlPlane) flush(ctx context.Context, a *APIServer) error {
	a.mu.Lock()
	answers, began := a.proc != nil && !a.paused, a.began
	a.mu.Unlock()
	if !answers {
		return c.audit.readLog(a)
	}
	marker := markerPath + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := get(ctx, a.Config(), marker); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var marked time.Time
	for {
		if err := c.audit.readLog(a); err != nil {
			return err
		}
		missing := c.audit.unfinished(a.name, marker, began)
		if missing == "" {
			return nil
		}
		// What is still running a second later has not been answered before.
		if missing != marker {
			if marked.IsZero() {
				marked = time.Now()
			} else if time.Since(marked) > time.Second {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the log: %w; it still lacks the end of %s", context.Cause(ctx), missing)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, cfg *rest.Config, uri string) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+uri, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// unfinished names a request that began before the marker and has not been
// logged to its end, or the marker; "" if there is none. A response can reach
// its client before its last stage reaches the log. Requests from before the
// process began were cut off with the last one.
func (r *auditReader) unfinished(server, marker string, began time.Time) string {
	open := map[string]string{}
	var marked bool
	var markerID string
	for _, e := range r.events {
		switch {
		case e.Server != server || e.RequestReceived.Before(began):
		case e.Stage == StageRequestReceived:
			if !marked && e.Verb != "watch" {
				open[e.AuditID] = e.Verb + " " + e.RequestURI
			}
			if e.RequestURI == marker {
				marked, markerID = true, e.AuditID
			}
		case e.Stage == StageResponseComplete || e.Stage == StagePanic:
			delete(open, e.AuditID)
		}
	}
	if !marked || open[markerID] != "" {
		return marker
	}
	for _, request := range open {
		return request
	}
	return ""
}

// readLog appends the whole lines that are new.
func (r *auditReader) readLog(a *APIServer) error {
	f, err := os.Open(a.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	defer f.Close()
	if r.read == nil {
		r.read = map[string]int64{}
	}
	if _, err := f.Seek(r.read[a.name], io.SeekStart); err != nil {
		return fmt.Errorf("seek in the audit log: %w", err)
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // half a line is read again next time
		}
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		r.read[a.name] += int64(len(line))
		event, err := parseAuditLine(line)
		if err != nil {
			return err
		}
		event.Server = a.name
		r.events = append(r.events, event)
	}
}

// parseAuditLine reads the fields of audit.k8s.io/v1 Event that AuditEvent has;
// the type itself lives in k8s.io/apiserver.
func parseAuditLine(line []byte) (AuditEvent, error) {
	var raw struct {
		AuditID, Stage, RequestURI, Verb, UserAgent string
		User, ImpersonatedUser                      struct{ Username string }
		ObjectRef                                   struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus                              struct{ Code int }
		RequestReceivedTimestamp, StageTimestamp    time.Time
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &raw); err != nil {
		return AuditEvent{}, fmt.Errorf("parse a line of the audit log: %w: %s", err, line)
	}
	user := raw.User.Username
	if raw.ImpersonatedUser.Username != "" {
		user = raw.ImpersonatedUser.Username
	}
	return AuditEvent{
		AuditID: raw.AuditID, Stage: raw.Stage, Verb: raw.Verb, RequestURI: raw.RequestURI,
		User: user, UserAgent: raw.UserAgent,
		Group: raw.ObjectRef.APIGroup, Resource: raw.ObjectRef.Resource, Subresource: raw.ObjectRef.Subresource,
		Namespace: raw.ObjectRef.Namespace, Name: raw.ObjectRef.Name,
		Code: raw.ResponseStatus.Code, RequestReceived: raw.RequestReceivedTimestamp, StageTimestamp: raw.StageTimestamp,
	}, nil
}
