package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// frame is one event of a watch as it arrived.
type frame struct {
	event watch.EventType
	// item is what the event is about; for a BOOKMARK it is never bad. Empty
	// for an ERROR.
	item item
	// status is set for an ERROR, and only then.
	status *metav1.Status
}

// frames decodes the body of a watch that was answered with 200 and closes it.
// Frames reach yield in the stream's order and as soon as they are complete,
// however the stream is cut into pieces.
//
// It returns nil when the server ended the stream between two frames,
// io.ErrUnexpectedEOF when it broke off within one, the reader's error when that
// failed, and errMalformed when the stream is not one of watch frames. Frames
// that came before have been yielded and count.
//
// A Status in place of a frame, as from a proxy that answers a watch with 200
// and an error, is yielded as the ERROR that it should have been.
func (d *decoder) frames(ctx context.Context, body io.ReadCloser, yield func(frame) error) error {
	return decodeValues(ctx, body, true, scanFrames, d.frame, yield)
}

func scanFrames(s *source) error {
	for {
		if _, err := s.peek(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		v, err := s.value()
		if err != nil {
			return err
		}
		s.values = append(s.values, v)
	}
}

// frame decodes one frame; it may change raw.
func (d *decoder) frame(raw []byte) (frame, error) {
	var event string
	var obj []byte
	var typed bool
	var fault error
	err := members(raw, func(key, value []byte) bool {
		switch string(key) {
		case "type":
			typed = true
			if err := unmarshal(value, &event); err != nil {
				fault = fmt.Errorf("%w: type of a watch event: %w", errMalformed, err)
			}
		case "object":
			if bytes.Equal(value, null) {
				return true // leaves an earlier one, as for the typed client
			}
			if obj != nil && !validJSON(obj) {
				fault = fmt.Errorf("%w: object of a watch event", errMalformed)
			}
			obj = value
		default:
			if !validJSON(value) {
				fault = fmt.Errorf("%w: %.32q of a watch event", errMalformed, key)
			}
		}
		return fault == nil
	})
	if err == nil {
		err = fault
	}
	if err != nil {
		return frame{}, err
	}
	if !typed {
		var t metav1.TypeMeta
		if unmarshal(raw, &t) == nil && t.Kind == "Status" {
			return frame{event: watch.Error, status: readStatus(raw)}, nil
		}
	}
	f := frame{event: watch.EventType(event)}
	switch f.event {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return frame{}, fmt.Errorf("%w: watch event of type %.32q", errMalformed, event)
	}
	if obj == nil {
		return frame{}, fmt.Errorf("%w: watch event %s without an object", errMalformed, event)
	}
	if f.event == watch.Error {
		if !validJSON(obj) {
			return frame{}, fmt.Errorf("%w: object of a watch event", errMalformed)
		}
		f.status = readStatus(obj)
		return f, nil
	}
	if f.item, err = d.item(obj); err != nil {
		return frame{}, err
	}
	if f.event == watch.Bookmark && f.item.bad != nil {
		f.item = item{object: d.bookmark(obj, f.item.bad.meta.ResourceVersion)}
	}
	return f, nil
}

// bookmark makes the bookmark that raw should have been. All that counts in one
// is the resource version and the annotation that ends the initial events.
func (d *decoder) bookmark(raw []byte, resourceVersion string) object {
	obj := d.new()
	obj.SetResourceVersion(resourceVersion)
	var m struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}
	_ = unmarshal(raw, &m)
	if string(m.Metadata.Annotations[metav1.InitialEventsAnnotationKey]) == `"true"` {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return obj
}
