package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const loopback = "127.0.0.1"

// etcd is the one member of the control plane's etcd.
type etcd struct {
	server
	url, peerURL string
	data         string // folder
}

func newEtcd(binary string, cfg *Config) (*etcd, error) {
	client, err := freePort()
	if err != nil {
		return nil, err
	}
	peer, err := freePort()
	if err != nil {
		return nil, err
	}
	e := &etcd{
		url:     "http://" + net.JoinHostPort(loopback, strconv.Itoa(client)),
		peerURL: "http://" + net.JoinHostPort(loopback, strconv.Itoa(peer)),
		data:    filepath.Join(cfg.Dir, "etcd"),
	}
	e.server = server{
		// It waits for the API servers' watches to end, which they do not.
		grace: time.Second,
		ready: e.healthy,
		spec: func() spec {
			return spec{name: "etcd", path: binary, dir: cfg.Dir, detached: cfg.Detach, args: []string{
				"--name=steadwatch",
				"--data-dir=" + e.data,
				"--listen-client-urls=" + e.url,
				"--advertise-client-urls=" + e.url,
				"--listen-peer-urls=" + e.peerURL,
				"--initial-advertise-peer-urls=" + e.peerURL,
				"--initial-cluster=steadwatch=" + e.peerURL,
				"--unsafe-no-fsync=" + strconv.FormatBool(!cfg.Fsync),
				"--log-level=warn",
			}}
		},
	}
	return e, nil
}

// healthy is nil once etcd has a leader, and is this etcd: it could be that of
// another process that chose the same port at the same moment.
func (e *etcd) healthy(ctx context.Context) error {
	var out struct{ Members []struct{ PeerURLs []string } }
	if err := e.call(ctx, "cluster/member/list", map[string]bool{"linearizable": true}, &out); err != nil {
		return err
	}
	if len(out.Members) != 1 || !slices.Contains(out.Members[0].PeerURLs, e.peerURL) {
		return fmt.Errorf("another etcd is at %s: its members are %v", e.url, out.Members)
	}
	return nil
}

// call is one request to etcd's JSON gateway: this way no etcd client gets into
// go.mod. Bytes are base64 and 64-bit integers are strings there.
func (e *etcd) call(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode an etcd request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make an etcd request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	data, err := do(req)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", method, err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode etcd's answer to %s: %w", method, err)
	}
	return nil
}

// loopbackClient uses no proxy and keeps no connection to a server that is
// about to be killed.
var loopbackClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func do(req *http.Request) ([]byte, error) {
	resp, err := loopbackClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, bytes.TrimSpace(data))
	}
	return data, nil
}

type etcdHeader struct {
	Revision int64 `json:"revision,string"`
}

// EtcdKey is the key under which the API server keeps a custom resource:
// /registry/<group>/<resource>[/<namespace>]/<name>. Built-in kinds do not
// follow this rule.
func EtcdKey(gr schema.GroupResource, namespace, name string) string {
	return path.Join("/registry", gr.Group, gr.Resource, namespace, name)
}

// EtcdPut writes raw bytes behind the API server's back and returns the new
// revision. Custom resources are stored as JSON, in the stored version.
func (c *ControlPlane) EtcdPut(ctx context.Context, key string, value []byte) (revision int64, err error) {
	var out struct{ Header etcdHeader }
	err = c.etcd.call(ctx, "kv/put", map[string][]byte{"key": []byte(key), "value": value}, &out)
	return out.Header.Revision, err
}

// EtcdGet reads raw bytes; value is nil if there is no such key.
func (c *ControlPlane) EtcdGet(ctx context.Context, key string) (value []byte, err error) {
	var out struct{ Kvs []struct{ Value []byte } }
	if err := c.etcd.call(ctx, "kv/range", map[string][]byte{"key": []byte(key)}, &out); err != nil {
		return nil, err
	}
	if len(out.Kvs) == 0 {
		return nil, nil
	}
	return append([]byte{}, out.Kvs[0].Value...), nil
}

// EtcdDelete deletes a key and reports whether there was one.
func (c *ControlPlane) EtcdDelete(ctx context.Context, key string) (bool, error) {
	var out struct {
		Deleted int64 `json:"deleted,string"`
	}
	err := c.etcd.call(ctx, "kv/deleterange", map[string][]byte{"key": []byte(key)}, &out)
	return out.Deleted > 0, err
}

// EtcdKeys lists the keys with a prefix, in order.
func (c *ControlPlane) EtcdKeys(ctx context.Context, prefix string) ([]string, error) {
	end := []byte(prefix)
	for i := len(end) - 1; ; i-- {
		if i < 0 {
			return nil, errors.New("list etcd keys: the prefix is empty")
		}
		if end[i] < 0xff {
			end[i]++
			end = end[:i+1]
			break
		}
	}
	var out struct{ Kvs []struct{ Key []byte } }
	in := map[string]any{"key": []byte(prefix), "range_end": end, "keys_only": true}
	if err := c.etcd.call(ctx, "kv/range", in, &out); err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(out.Kvs))
	for _, kv := range out.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

// EtcdRevision is etcd's current revision: the number that resourceVersions
// are.
func (c *ControlPlane) EtcdRevision(ctx context.Context) (int64, error) {
	var out struct{ Header etcdHeader }
	err := c.etcd.call(ctx, "kv/range", map[string]any{"key": []byte("/"), "count_only": true}, &out)
	return out.Header.Revision, err
}

// PauseEtcd stops etcd's threads. Reads that the API server's watch cache can
// answer go on for a while.
func (c *ControlPlane) PauseEtcd(ctx context.Context) error { return c.etcd.pause(ctx) }

// ResumeEtcd undoes PauseEtcd.
func (c *ControlPlane) ResumeEtcd() error { return c.etcd.resume() }

// StopEtcd ends etcd.
func (c *ControlPlane) StopEtcd() { c.etcd.stop() }

// StartEtcd starts etcd again, with the same ports and data, and waits until it
// is healthy.
func (c *ControlPlane) StartEtcd(ctx context.Context) error { return c.etcd.restart(ctx) }

// Snapshot is a copy of etcd's data, kept in the control plane's folder.
type Snapshot struct {
	dir string
	// Revision is etcd's revision at the time.
	Revision int64
}

// Snapshot copies etcd's data while its threads are stopped, which takes a few
// milliseconds. What etcd finds there after Restore is what it would find after
// a crash at that moment.
func (c *ControlPlane) Snapshot(ctx context.Context) (_ Snapshot, err error) {
	revision, err := c.EtcdRevision(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	dir, err := os.MkdirTemp(c.dir, "snapshot-")
	if err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	if err := c.etcd.pause(ctx); err != nil {
		return Snapshot{}, errors.Join(fmt.Errorf("snapshot: %w", err), c.etcd.resume())
	}
	err = os.CopyFS(dir, os.DirFS(c.etcd.data))
	if err = errors.Join(err, c.etcd.resume()); err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	return Snapshot{dir: dir, Revision: revision}, nil
}

// RestoreOptions says what happens around Restore.
type RestoreOptions struct {
	// RestartAPIServers starts the API servers that were running anew, as every
	// guide to restoring etcd demands. Without it they keep running with a watch
	// cache from the future.
	RestartAPIServers bool
}

// Restore puts etcd back to a snapshot: afterwards its revision is the
// snapshot's (or little more). It may be repeated.
func (c *ControlPlane) Restore(ctx context.Context, s Snapshot, o RestoreOptions) error {
	if s.dir == "" {
		return errors.New("restore: the Snapshot is empty: it has to come from ControlPlane.Snapshot")
	}
	var servers []*APIServer
	if o.RestartAPIServers {
		for _, a := range c.apiServers() {
			if a.running() {
				a.Stop()
				servers = append(servers, a)
			}
		}
	}
	c.etcd.kill()
	if err := os.RemoveAll(c.etcd.data); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	// etcd insists on 0700.
	if err := os.Mkdir(c.etcd.data, 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := os.CopyFS(c.etcd.data, os.DirFS(s.dir)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := c.etcd.restart(ctx); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, a := range servers {
		if err := a.Start(ctx); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}
