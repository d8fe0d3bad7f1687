package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// pattern is what to look for, in each way in which it may be written.
type pattern [][]byte

// patternSize is a multiple of 3, so that what is made of the pattern alone looks the
// same in base64 from one repetition to the next.
const patternSize = 36

// newPattern makes one that nobody has seen before: a name and 64 random bits.
func newPattern(name string) pattern {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	plain := append([]byte(name), bytes.Repeat([]byte("-"), patternSize)...)[:patternSize-16]
	plain = hex.AppendEncode(plain, random)
	return pattern{plain, []byte(base64.StdEncoding.EncodeToString(plain))}
}

// fill returns n bytes made of the pattern.
func (p pattern) fill(n int) []byte {
	return bytes.Repeat(p[0], n/patternSize+1)[:n]
}

// count says how often data has the pattern in any way of writing from its beginning
// up to limit, from where on a match may begin but does not count.
func (p pattern) count(data []byte, limit int) int {
	found := 0
	for _, form := range p {
		for at := 0; ; {
			next := bytes.Index(data[at:], form)
			if next < 0 || at+next >= limit {
				break
			}
			found++
			at += next + len(form)
		}
	}
	return found
}

// longest is the length of its longest form.
func (p pattern) longest() int {
	n := 0
	for _, form := range p {
		n = max(n, len(form))
	}
	return n
}
