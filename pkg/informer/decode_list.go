package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// envelope is a list without its items.
type envelope struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
}

// list decodes the body of a LIST that was answered with 200 and closes it.
// Items reach yield in the list's order while the rest is still being read, so
// that a list is never held twice: once as bytes and once as objects.
//
// An error means that the answer as a whole is worth nothing, whatever has been
// yielded: the body is not a list, ends early or is a Status, which is returned
// as the API error it is.
func (d *decoder) list(ctx context.Context, body io.ReadCloser, yield func(item) error) (metav1.ListMeta, error) {
	var around []byte
	var seen bool
	err := decodeValues(ctx, body, false,
		func(s *source) (err error) { around, seen, err = scanList(s); return err },
		d.item, yield)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	var e envelope
	if err := unmarshal(around, &e); err != nil {
		return metav1.ListMeta{}, fmt.Errorf("%w: list without its items: %w", errMalformed, err)
	}
	switch {
	case e.Kind == "Status":
		return metav1.ListMeta{}, statusError(around)
	case e.Kind != "" && !strings.HasSuffix(e.Kind, "List"):
		return metav1.ListMeta{}, fmt.Errorf("%w: a list was asked for and a %.64q came", errMalformed, e.Kind)
	case e.Kind == "" && !seen:
		// To the typed client {} is an empty list, from which it follows that
		// every object is gone. Nobody said so.
		return metav1.ListMeta{}, fmt.Errorf("%w: neither a kind nor items", errMalformed)
	case !seen && e.ResourceVersion == "":
		// A discovery document: it is called a list, and client-go sees no objects.
		return metav1.ListMeta{}, fmt.Errorf("%w: a %.64q without items and resource version", errMalformed, e.Kind)
	}
	return e.ListMeta, nil
}

// scanList reads one list. It returns all of it but the items, as a JSON object,
// and whether there were items (or null in their place).
func scanList(s *source) (around []byte, seen bool, err error) {
	if _, err := s.expect("{"); err != nil {
		return nil, false, err
	}
	around = append(around, '{')
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return nil, false, unexpectedEOF(err)
		}
		if first && c == '}' {
			s.pos++
			break
		}
		key, err := s.value()
		if err != nil {
			return nil, false, err
		}
		rawKey := s.buf[key.start:key.end]
		name, err := unquoteKey(rawKey)
		if err != nil {
			return nil, false, err
		}
		isItems := string(name) == "items"
		if !isItems {
			if len(around) > 1 {
				around = append(around, ',')
			}
			around = append(append(around, rawKey...), ':')
		}
		if _, err := s.expect(":"); err != nil {
			return nil, false, err
		}
		switch {
		case !isItems:
			v, err := s.value()
			if err != nil {
				return nil, false, err
			}
			around = append(around, s.buf[v.start:v.end]...)
			if len(around) > maxValueBytes {
				return nil, false, fmt.Errorf("%w: more than %d bytes around the items", errMalformed, maxValueBytes)
			}
		case seen:
			// The typed client decodes the second list into the objects of the
			// first, which mixes them. No API server sends this.
			return nil, false, fmt.Errorf("%w: items twice", errMalformed)
		default:
			seen = true
			if err := scanItems(s); err != nil {
				return nil, false, err
			}
		}
		if c, err = s.expect(",}"); err != nil {
			return nil, false, err
		}
		if c == '}' {
			break
		}
	}
	if _, err := s.peek(); err == nil {
		return nil, false, fmt.Errorf("%w: %.32q after the list", errMalformed, s.buf[s.pos:])
	} else if err != io.EOF {
		return nil, false, err
	}
	return append(around, '}'), seen, nil
}

func scanItems(s *source) error {
	c, err := s.peek()
	if err != nil {
		return unexpectedEOF(err)
	}
	if c != '[' {
		v, err := s.value()
		if err != nil {
			return err
		}
		if raw := s.buf[v.start:v.end]; string(raw) != "null" {
			return fmt.Errorf("%w: items are %.32q", errMalformed, raw)
		}
		return nil
	}
	s.pos++
	for first := true; ; first = false {
		if c, err = s.peek(); err != nil {
			return unexpectedEOF(err)
		}
		if first && c == ']' {
			s.pos++
			return nil
		}
		v, err := s.value()
		if err != nil {
			return err
		}
		s.values = append(s.values, v)
		if c, err = s.expect(",]"); err != nil {
			return err
		}
		if c == ']' {
			return nil
		}
	}
}

// readStatus reads a metav1.Status that stands where objects were expected. One
// that reports no failure, or cannot be read, becomes a 500 that says so:
// client-go takes a Status of Success in place of a list for an empty list.
func readStatus(raw []byte) *metav1.Status {
	var status metav1.Status
	err := unmarshal(raw, &status)
	switch {
	case err != nil:
		return &apierrors.NewInternalError(fmt.Errorf("read the status that the API server sent: %w", err)).ErrStatus
	case status.Status == metav1.StatusSuccess, status.Code == 0 && status.Reason == "" && status.Message == "":
		return &apierrors.NewInternalError(errors.New("the API server sent a status without an error instead of objects")).ErrStatus
	case status.Code == 0 && status.Reason == "":
		status.Code = http.StatusInternalServerError
	}
	status.Status = metav1.StatusFailure
	return &status
}

func statusError(raw []byte) error {
	if !validJSON(raw) {
		return fmt.Errorf("%w: status", errMalformed)
	}
	return &apierrors.StatusError{ErrStatus: *readStatus(raw)}
}
