package informer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The scanner finds where JSON values begin and end, and nothing else: it keeps
// no tree, and what lies between a value's first and last byte is left to the
// decoder that gets those bytes. An answer that is not JSON is therefore found
// in two places: here, when the structure around the values is wrong or the
// bytes end too early, and in the decoder, which checks each value. Both say
// errMalformed.

// errMalformed marks an answer that is not well-formed JSON or not of the shape
// that was asked for. It is a fault of the transport or of the server, never of
// an object: nothing of such an answer may be used.
var errMalformed = errors.New("malformed answer")

// maxValueBytes bounds one item, one watch frame and the part of a list around
// its items. The API server's own limit for an object is a few MiB (3 MiB a
// request, 1.5 MiB in etcd by default), client-go's for a watch frame 16 MiB.
const maxValueBytes = 64 << 20

const (
	other byte = iota
	quote
	opening
	closing
	separator // what ends a number or a literal: white space, comma, colon, brackets
)

var classes = [256]byte{
	'"': quote,
	'{': opening, '[': opening,
	'}': closing, ']': closing,
	' ': separator, '\t': separator, '\r': separator, '\n': separator, ',': separator, ':': separator,
}

// valueScan finds the end of one JSON value in bytes that arrive in pieces. The
// zero value is ready.
//
// It counts brackets without telling one kind from the other. In a value whose
// brackets do not match, the end found is wrong, but then the value is no JSON
// either and its decoder refuses it.
type valueScan struct {
	depth    int
	started  bool
	inString bool
	escaped  bool
	scalar   bool
}

// feed goes on with b. It returns how many bytes belong to the value and
// whether that was all of it; then the value ends before b[n]. A number or a
// literal is over only when something follows it.
func (v *valueScan) feed(b []byte) (n int, done bool) {
	i := 0
	for i < len(b) {
		if v.inString {
			if v.escaped {
				v.escaped = false
				i++
				continue
			}
			for i < len(b) && b[i] != '"' && b[i] != '\\' {
				i++
			}
			if i == len(b) {
				return i, false
			}
			if b[i] == '\\' {
				v.escaped = true
				i++
				continue
			}
			v.inString = false
			i++
			if v.depth == 0 {
				return i, true
			}
			continue
		}
		switch classes[b[i]] {
		case quote:
			if v.scalar {
				return i, true
			}
			v.started, v.inString = true, true
		case opening:
			if v.scalar {
				return i, true
			}
			v.started = true
			v.depth++
		case closing:
			if v.scalar || !v.started {
				return i, true
			}
			v.depth--
			if v.depth == 0 {
				return i + 1, true
			}
		case separator:
			if v.depth == 0 { // only a scalar gets here: nothing else is open at depth 0
				return i, true
			}
		default:
			if v.depth == 0 {
				v.started, v.scalar = true, true
			}
		}
		i++
	}
	return i, false
}

// endsAtEOF reports whether the value may end where the input does.
func (v *valueScan) endsAtEOF() bool { return v.scalar }

// skipValue returns the end of the value that begins at data[i].
func skipValue(data []byte, i int) (int, error) {
	var v valueScan
	n, done := v.feed(data[i:])
	if n == 0 || !done && !v.endsAtEOF() {
		return 0, fmt.Errorf("%w: value expected at byte %d", errMalformed, i)
	}
	return i + n, nil
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// members calls f for each member of the JSON object in data, in order and
// repeated keys included, until f returns false. Values are slices of data.
// It fails when data is not an object; values are not checked.
// Keys are unquoted.
func members(data []byte, f func(key, value []byte) bool) error {
	return walkJSON(data, '{', '}', f)
}

// elements is members for arrays.
func elements(data []byte, f func(value []byte) bool) error {
	return walkJSON(data, '[', ']', func(_, value []byte) bool { return f(value) })
}

func walkJSON(data []byte, open, end byte, f func(key, value []byte) bool) error {
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != open {
		return fmt.Errorf("%w: %q expected at byte %d", errMalformed, open, i)
	}
	i = skipSpace(data, i+1)
	for first := true; ; first = false {
		if i < len(data) && data[i] == end && first {
			i++
			break
		}
		var key []byte
		if open == '{' {
			from, err := i, error(nil)
			if i, err = skipValue(data, i); err != nil {
				return err
			}
			if key, err = unquoteKey(data[from:i]); err != nil {
				return err
			}
			if i = skipSpace(data, i); i == len(data) || data[i] != ':' {
				return fmt.Errorf("%w: ':' expected at byte %d", errMalformed, i)
			}
			i = skipSpace(data, i+1)
		}
		from, err := i, error(nil)
		if i, err = skipValue(data, i); err != nil {
			return err
		}
		if !f(key, data[from:i]) {
			return nil
		}
		i = skipSpace(data, i)
		if i < len(data) && data[i] == end {
			i++
			break
		}
		if i == len(data) || data[i] != ',' {
			return fmt.Errorf("%w: ',' or %q expected at byte %d", errMalformed, end, i)
		}
		i = skipSpace(data, i+1)
	}
	if i = skipSpace(data, i); i != len(data) {
		return fmt.Errorf("%w: nothing more expected at byte %d", errMalformed, i)
	}
	return nil
}

// unquoteKey returns the key that a JSON string stands for, as a rule a slice
// of raw.
func unquoteKey(raw []byte) ([]byte, error) {
	if len(raw) >= 2 && raw[0] == '"' {
		plain := true
		for _, c := range raw {
			plain = plain && c >= ' ' && c < 0x80 && c != '\\'
		}
		if plain {
			return raw[1 : len(raw)-1], nil
		}
	}
	var key string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &key) != nil {
		return nil, fmt.Errorf("%w: key expected instead of %.32q", errMalformed, raw)
	}
	return []byte(key), nil
}

// span is a value's place in a segment.
type span struct{ start, end int }

// segmentBytes is what a segment holds unless one value needs more. Small
// enough that decoding starts early and many fit into the look-ahead, large
// enough that handing one over costs nothing beside decoding it.
const segmentBytes = 32 << 10

// source cuts a stream of bytes into segments, each holding whole values. Bytes
// are copied once more only where a value straddles two segments.
type source struct {
	r io.Reader
	// handOver takes a segment and the places of the values in it. It owns the
	// segment from then on.
	handOver func(segment []byte, values []span) error
	// eager hands over what is complete before each read, since a watch may
	// not get anything more for a long time. A list fills its segments.
	eager bool
	// fresh returns an empty segment.
	fresh func() []byte

	buf    []byte // what has been read of this segment, with room up to cap
	pos    int    // next byte to look at
	values []span // complete values before pos that wait for handOver
	err    error  // what the reader ended with
}

// more reads more bytes. Bytes before keep that belong to no value may go;
// what moves, moves by the returned shift, s.pos included.
func (s *source) more(keep int) (shift int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	full := len(s.buf) == cap(s.buf)
	switch {
	case len(s.values) > 0 && (s.eager || full):
		rest := s.buf[keep:]
		next := s.fresh()
		if 2*len(rest) > cap(next) {
			next = make([]byte, 0, 2*len(rest))
		}
		next = append(next, rest...)
		if err := s.handOver(s.buf, s.values); err != nil {
			s.err = err
			return 0, err
		}
		s.buf, s.values, shift = next, nil, keep
	case s.buf == nil:
		s.buf = s.fresh()
	case full && keep > 0 && len(s.values) == 0:
		s.buf, shift = append(s.buf[:0], s.buf[keep:]...), keep
	case full && len(s.buf) >= maxValueBytes:
		s.err = fmt.Errorf("%w: a value of more than %d bytes", errMalformed, maxValueBytes)
		return 0, s.err
	case full:
		s.buf = append(make([]byte, 0, 2*cap(s.buf)), s.buf...)
	}
	s.pos -= shift
	for range 100 {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		if err != nil {
			s.err = err
		}
		if n > 0 {
			return shift, nil
		}
		if err != nil {
			return shift, err
		}
	}
	s.err = io.ErrNoProgress
	return shift, s.err
}

// peek skips white space and returns the next byte without taking it. The error
// is the reader's, io.EOF at a proper end.
func (s *source) peek() (byte, error) {
	for {
		s.pos = skipSpace(s.buf, s.pos)
		if s.pos < len(s.buf) {
			return s.buf[s.pos], nil
		}
		if _, err := s.more(s.pos); err != nil {
			return 0, err
		}
	}
}

// expect takes the next byte, which has to be one of want.
func (s *source) expect(want string) (byte, error) {
	c, err := s.peek()
	if err != nil {
		return 0, unexpectedEOF(err)
	}
	if bytes.IndexByte([]byte(want), c) < 0 {
		return 0, fmt.Errorf("%w: %.32q where one of %q was expected", errMalformed, s.buf[s.pos:], want)
	}
	s.pos++
	return c, nil
}

// value takes the value that begins at the next byte. The place returned is
// good until the next call.
func (s *source) value() (span, error) {
	if _, err := s.peek(); err != nil {
		return span{}, unexpectedEOF(err)
	}
	start := s.pos
	var v valueScan
	for {
		n, done := v.feed(s.buf[s.pos:])
		s.pos += n
		if done {
			break
		}
		shift, err := s.more(start)
		if err == io.EOF && v.endsAtEOF() {
			start -= shift
			break
		}
		if err != nil {
			return span{}, unexpectedEOF(err)
		}
		start -= shift
	}
	if start == s.pos {
		return span{}, fmt.Errorf("%w: %.32q where a value was expected", errMalformed, s.buf[s.pos:])
	}
	return span{start, s.pos}, nil
}

// flush hands over what is left.
func (s *source) flush() error {
	if len(s.values) == 0 {
		return nil
	}
	buf, values := s.buf, s.values
	s.buf, s.pos, s.values, s.err = nil, 0, nil, io.EOF
	return s.handOver(buf, values)
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
