package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// format is how a watch response separates and encodes its events.
type format int

const (
	jsonFrames     format = iota // a JSON document a line
	protobufFrames               // 4 bytes of length, then a metav1.WatchEvent
	rawFrames                    // whatever comes in one read
)

func formatOf(contentType string) format {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && kind == "application/json":
		return jsonFrames
	case err == nil && kind == runtime.ContentTypeProtobuf:
		return protobufFrames
	default:
		return rawFrames
	}
}

// maxFrame is well above what etcd stores; a length beyond it is no length.
const maxFrame = 64 << 20

// read returns one frame with its delimiters, so that writing it is passing it on.
func (f format) read(r *bufio.Reader) ([]byte, error) {
	switch f {
	case jsonFrames:
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) > 0 {
			err = nil // The next read says EOF again.
		}
		return line, err
	case protobufFrames:
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size > maxFrame {
			return nil, fmt.Errorf("read a protobuf frame: a length of %d bytes", size)
		}
		out := make([]byte, 4+size)
		copy(out, head[:])
		_, err := io.ReadFull(r, out[4:])
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return out, err
	default:
		if _, err := r.Peek(1); err != nil {
			return nil, err
		}
		out := make([]byte, r.Buffered())
		_, err := io.ReadFull(r, out)
		return out, err
	}
}

// bookmark says whether a frame is a bookmark, and whether it is the one that
// ends the initial events.
func (f format) bookmark(frame []byte) (is, end bool) {
	var object []byte
	switch f {
	case jsonFrames:
		var event struct {
			Type   string
			Object json.RawMessage
		}
		// Cheap first: most frames are no bookmarks, and some are large.
		if !bytes.Contains(frame, []byte(watch.Bookmark)) || json.Unmarshal(frame, &event) != nil {
			return false, false
		}
		is, object = event.Type == string(watch.Bookmark), event.Object
	case protobufFrames:
		var event metav1.WatchEvent
		if event.Unmarshal(frame[4:]) != nil {
			return false, false
		}
		is, object = event.Type == string(watch.Bookmark), event.Object.Raw
	}
	// A bookmark has no content but its revision and this annotation.
	return is, is && bytes.Contains(object, []byte(metav1.InitialEventsAnnotationKey))
}

// protobufMagic is before every object of the API server's protobuf encoding.
var protobufMagic = []byte{'k', '8', 's', 0}

// errorFrame is an ERROR event.
func (f format) errorFrame(s *metav1.Status) []byte {
	if f != protobufFrames {
		out := append([]byte(`{"type":"ERROR","object":`), bytes.TrimSpace(encodeStatus(s, 0, "", false))...)
		return append(out, "}\n"...)
	}
	// Marshal of these types cannot fail: they write to memory.
	raw, _ := s.Marshal()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}
	object, _ := unknown.Marshal()
	event := metav1.WatchEvent{
		Type:   string(watch.Error),
		Object: runtime.RawExtension{Raw: slices.Concat(protobufMagic, object)},
	}
	body, _ := event.Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// Opaque versions are the digits in reverse order behind a prefix that occurs
// nowhere else and that no comparison of numbers survives.
const opaquePrefix = "opaque."

var (
	versionInJSON = regexp.MustCompile(`("resourceVersion"\s*:\s*")([1-9][0-9]*)"`)
	versionOpaque = regexp.MustCompile(`opaque\.([0-9]+)`)
)

func hideVersions(body []byte) []byte {
	return versionInJSON.ReplaceAllFunc(body, func(match []byte) []byte {
		parts := versionInJSON.FindSubmatch(match)
		return slices.Concat(parts[1], []byte(opaquePrefix), reversed(parts[2]), []byte(`"`))
	})
}

// showVersions also finds those in queries and in the values of JSON patches.
func showVersions(body []byte) []byte {
	return versionOpaque.ReplaceAllFunc(body, func(match []byte) []byte {
		return reversed(match[len(opaquePrefix):])
	})
}

func reversed(b []byte) []byte {
	out := slices.Clone(b)
	slices.Reverse(out)
	return out
}

// Expired is what the API server says when a revision has been compacted.
func Expired() *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired,
		Message: "too old resource version (fault proxy)",
	}
}

// ResourceVersionTooLarge is what the API server says of a revision from the
// future.
func ResourceVersionTooLarge() *metav1.Status {
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: 504, Reason: metav1.StatusReasonTimeout,
		Message: "Timeout: Too large resource version (fault proxy)",
		Details: &metav1.StatusDetails{
			RetryAfterSeconds: 1,
			Causes: []metav1.StatusCause{{
				Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
			}},
		},
	}
}
