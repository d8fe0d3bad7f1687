package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// One stored object that the API server cannot read or convert fails the LIST of
// its whole kind, for every client. Which one it is decides how long the kind
// stays down, so it is looked for in two places:
//
//   - API servers that have the feature AllowUnsafeMalformedObjectDeletion
//     (KEP-3926) answer with the status reason StorageReadError, and each cause
//     names an etcd key.
//   - Others, and a conversion webhook that fails for one object, name none. Then
//     tolerant.walk bisects the list by pages.

const (
	// maxSuspects is how many of the objects that the server names are shown.
	maxSuspects = 3

	// walkAfter is how many tries have to fail alike before the list is walked.
	walkAfter = 2
	// walkAgain is how long a walk counts while the refusal lasts.
	walkAgain = 10 * time.Minute
	// walkPage is the largest page of a walk, walkRequests and walkFor bound it,
	// and walkPause lies between its requests.
	walkPage     = 500
	walkRequests = 250
	walkFor      = 2 * time.Minute
	walkPause    = 100 * time.Millisecond
)

// mentionsCorruption recognises what the API server says of a value in etcd that it
// cannot decode (k8s.io/apiserver/pkg/storage/errors.go). The reason StorageReadError
// is not everywhere: a watch cache that cannot be filled for such a value answers
// with 429 and these words, GET with a plain 500.
func mentionsCorruption(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError || strings.Contains(err.Error(), "StorageError: corrupt object")
}

// keyInWords is the etcd key in those words.
var keyInWords = regexp.MustCompile(`StorageError: corrupt object, Code: \d+, Key: (\S+),`)

// suspects names the stored objects that the API server's error names by their
// etcd keys: "namespace/name" or "name", several joined by commas. "" if none.
func suspects(err error, resource schema.GroupResource) string {
	var keys []string
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonStoreReadError && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			keys = append(keys, cause.Field)
		}
	} else if found := keyInWords.FindStringSubmatch(err.Error()); found != nil {
		keys = append(keys, found[1])
	}
	var names []string
	for _, name := range keys {
		// <prefix>/<group>/<resource>/<namespace>/<name>; the prefix is the server's
		// choice. Built-in kinds follow no such rule: then the key itself is shown.
		if _, rest, ok := strings.Cut(name, "/"+resource.Group+"/"+resource.Resource+"/"); ok {
			name = rest
		}
		switch {
		case name == "":
		case len(names) == maxSuspects:
			return strings.Join(names, ", ") + " and others"
		default:
			names = append(names, cut(name))
		}
	}
	return strings.Join(names, ", ")
}

// oneObject says whether an error of LIST may come of a single stored object.
func oneObject(err error) bool {
	switch classify(err) {
	case Corrupt, Conversion:
		return true
	case ServerError:
		// 503 and 504 speak of the server's own health.
		status := apierrors.APIStatus(nil)
		return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError
	default:
		return false
	}
}

// walker finds where in a list the server fails. "" and no error: nowhere.
type walker interface {
	walk(ctx context.Context) (suspect string, err error)
}

var errWalkTooLong = fmt.Errorf("find the object that cannot be listed: not found within %d pages and %s", walkRequests, walkFor)

// walk reads the list by pages of metadata until one fails, and that one again by
// halves, until it is clear after which object the server fails. That object itself
// has no name here: its page does not arrive. Pages go by etcd key, which is by
// namespace and name.
//
// It stops without an answer when the server fails for any other reason, or fails
// for what it had answered before: then it is not one object that ails it.
func (t *tolerant) walk(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, walkFor)
	defer cancel()
	var token, last string
	var first *metav1.PartialObjectMetadata
	limit := int64(walkPage)
	for range walkRequests {
		page, err := t.metadata(ctx, token, limit)
		switch {
		case err == nil && page.Continue == "":
			return "", nil
		case err == nil && len(page.Items) == 0:
			token = page.Continue
		case err == nil:
			token = page.Continue
			o := page.Items[len(page.Items)-1]
			last = strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
			if first == nil {
				first = &page.Items[0]
			}
		case !oneObject(err):
			return "", err
		case limit > 1:
			limit = (limit + 1) / 2
		case first != nil:
			// The control: what was read before can be read still.
			if _, err := t.metadata(ctx, "", 1); err != nil {
				return "", err
			}
			return "the object after " + last + " in the order of namespace and name", nil
		case classify(err) == ServerError:
			return "", err // nothing can be read: that may be any trouble
		default:
			return "the first object in the order of namespace and name", nil
		}
		select {
		case <-ctx.Done():
			return "", errWalkTooLong
		case <-time.After(walkPause):
		}
	}
	return "", errWalkTooLong
}

// metadata reads one page of the list, of which the server sends metadata only.
// It has read and converted the whole objects before.
func (t *tolerant) metadata(ctx context.Context, token string, limit int64) (*metav1.PartialObjectMetadataList, error) {
	// Stream, for its errors are the server's.
	body, err := t.request(metav1.ListOptions{Limit: limit, Continue: token}).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		MaxRetries(0).
		Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	page := &metav1.PartialObjectMetadataList{}
	if err := json.NewDecoder(body).Decode(page); err != nil {
		return nil, fmt.Errorf("read a page of metadata: %w", err)
	}
	return page, nil
}

var _ walker = &tolerant{}

// find starts a walk if one is due. Nobody waits for it but join.
func (l *listWatch) find(ctx context.Context, err error) {
	w, ok := l.inner.(walker)
	if !ok || !l.condition.walkDue(err) || !l.enter(func(*counts) {}) {
		return
	}
	go func() {
		defer l.inflight.Done()
		suspect, err := w.walk(ctx)
		if ctx.Err() == nil {
			l.condition.walked(suspect, err)
		}
	}()
}

// walkDue says whether the list should be walked now, and notes that it is.
func (c *condition) walkDue(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspect != "" || c.tries < walkAfter || !oneObject(err) || time.Since(c.walkedAt) < walkAgain {
		return false
	}
	c.walkedAt = time.Now()
	return true
}

// walked notes what a walk has found, unless the refusal is over by now.
func (c *condition) walked(suspect string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reason == "":
	case suspect != "":
		c.suspect = suspect
		c.logger.Error(nil, "Found where the API server fails to list", "resource", c.resource.GroupResource(), "namespace", c.namespace,
			"reason", c.reason, "suspect", suspect, "remedy", remedy(c.reason, c.resource, c.namespace))
	default:
		c.logger.V(2).Info("Did not find where the API server fails to list", "resource", c.resource.GroupResource(), "namespace", c.namespace, "err", err)
	}
}
