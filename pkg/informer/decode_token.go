package informer

import "unicode/utf8"

// The tokens of JSON (RFC 8259), for fast: strict where the typed client's
// decoder is strict, and never more lenient.

func (c *cursor) peek() byte {
	if c.pos < len(c.data) {
		return c.data[c.pos]
	}
	return end
}

// space moves to the next byte that is not white space and returns it.
func (c *cursor) space() byte {
	for c.pos < len(c.data) {
		b := c.data[c.pos]
		if b > ' ' || b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b
		}
		c.pos++
	}
	return end
}

// open enters the list or object at pos. more is false when it is empty;
// else pos is at its first element.
func (c *cursor) open(closing byte) (more, ok bool) {
	if c.depth++; c.depth > maxFastDepth {
		return false, false
	}
	c.pos++
	if c.space() == closing {
		c.pos++
		c.depth--
		return false, true
	}
	return true, true
}

// next moves from the end of an element to the next one. more is false when
// there is none; then pos is behind the list or object.
func (c *cursor) next(closing byte) (more, ok bool) {
	switch c.space() {
	case ',':
		c.pos++
		c.space()
		return true, true
	case closing:
		c.pos++
		c.depth--
		return false, true
	}
	return false, false
}

// plainKey takes a member's key, which must not be escaped, and the colon.
func (c *cursor) plainKey() ([]byte, bool) {
	if c.peek() != '"' {
		return nil, false
	}
	from := c.pos + 1
	i := from
	for i < len(c.data) && inString[c.data[i]] == plain {
		i++
	}
	if i == len(c.data) || c.data[i] != '"' {
		return nil, false
	}
	c.pos = i + 1
	return c.data[from:i], c.colon()
}

// key takes a member's key and the colon.
func (c *cursor) key() ([]byte, bool) {
	key, ok := c.text()
	return key, ok && c.colon()
}

func (c *cursor) colon() bool {
	if c.space() != ':' {
		return false
	}
	c.pos++
	c.space()
	return true
}

const (
	plain   byte = iota
	special      // the end of a string, an escape, or what no string may hold
	beyond       // not ASCII
)

var inString = func() (class [256]byte) {
	for b := range class {
		switch {
		case b < ' ', b == '"', b == '\\':
			class[b] = special
		case b >= utf8.RuneSelf:
			class[b] = beyond
		}
	}
	return class
}()

// text takes a string and returns what it stands for, which is good until the
// next string. It declines what is no UTF-8.
func (c *cursor) text() ([]byte, bool) {
	if c.peek() != '"' {
		return nil, false
	}
	from := c.pos + 1
	i := from
	for i < len(c.data) && inString[c.data[i]] == plain {
		i++
	}
	if i < len(c.data) && c.data[i] == '"' {
		c.pos = i + 1
		return c.data[from:i], true
	}
	return c.escaped(from, i)
}

// escaped is text for a string that begins at from and is plain up to i.
func (c *cursor) escaped(from, i int) ([]byte, bool) {
	out := append(c.scratch[:0], c.data[from:i]...)
	defer func() { c.scratch = out[:0] }()
	for i < len(c.data) {
		b := c.data[i]
		switch {
		case b == '"':
			c.pos = i + 1
			return out, utf8.Valid(out)
		case b < ' ':
			return nil, false
		case b != '\\':
			out = append(out, b)
			i++
		case i+1 == len(c.data):
			return nil, false
		case c.data[i+1] == 'u':
			r := c.hex(i + 2)
			if r < 0 || r >= 0xD800 && r < 0xE000 { // half of a pair
				return nil, false
			}
			out = utf8.AppendRune(out, r)
			i += 6
		default:
			b := unescaped[c.data[i+1]]
			if b == 0 {
				return nil, false
			}
			out = append(out, b)
			i += 2
		}
	}
	return nil, false
}

var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex returns what four hexadecimal digits at i stand for, -1 if there are none.
func (c *cursor) hex(i int) rune {
	if i+4 > len(c.data) {
		return -1
	}
	var r rune
	for _, b := range c.data[i : i+4] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(b)
	}
	return r
}

// integer takes a number that is written as a whole one, of up to 18 digits. For
// anything else what follows is no end of a value.
func (c *cursor) integer() (int64, bool) {
	i := c.pos
	negative := c.peek() == '-'
	if negative {
		i++
	}
	from := i
	var n int64
	for i < len(c.data) && c.data[i]-'0' <= 9 {
		n = n*10 + int64(c.data[i]-'0')
		i++
	}
	digits := i - from
	if digits == 0 || digits > 18 || digits > 1 && c.data[from] == '0' {
		return 0, false
	}
	c.pos = i
	if negative {
		n = -n
	}
	return n, true
}

func (c *cursor) literal(want string) bool {
	if len(c.data)-c.pos < len(want) || string(c.data[c.pos:c.pos+len(want)]) != want {
		return false
	}
	c.pos += len(want)
	return true
}

// skip takes any value. Strings in it need not be UTF-8.
func (c *cursor) skip() bool {
	switch c.peek() {
	case '"':
		return c.skipString()
	case '{':
		for more, ok := c.open('}'); ; more, ok = c.next('}') {
			if !more || !ok {
				return ok
			}
			if c.peek() != '"' || !c.skipString() || !c.colon() || !c.skip() {
				return false
			}
		}
	case '[':
		for more, ok := c.open(']'); ; more, ok = c.next(']') {
			if !more || !ok {
				return ok
			}
			if !c.skip() {
				return false
			}
		}
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	default:
		return c.skipNumber()
	}
}

func (c *cursor) skipString() bool {
	i := c.pos + 1
	for i < len(c.data) {
		switch b := c.data[i]; {
		case inString[b] != special:
			i++
		case b == '"':
			c.pos = i + 1
			return true
		case b != '\\' || i+1 == len(c.data):
			return false
		case c.data[i+1] == 'u':
			if c.hex(i+2) < 0 {
				return false
			}
			i += 6
		case unescaped[c.data[i+1]] == 0:
			return false
		default:
			i += 2
		}
	}
	return false
}

func (c *cursor) skipNumber() bool {
	i := c.pos
	if i < len(c.data) && c.data[i] == '-' {
		i++
	}
	digits := func() bool {
		from := i
		for i < len(c.data) && c.data[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if i < len(c.data) && c.data[i] == '0' {
		i++
	} else if !digits() {
		return false
	}
	if i < len(c.data) && c.data[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(c.data) && c.data[i]|0x20 == 'e' {
		i++
		if i < len(c.data) && (c.data[i] == '+' || c.data[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	c.pos = i
	return true
}
