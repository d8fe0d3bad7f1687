//go:build !linux

package main

import "errors"

func search(int, ...pattern) ([]int, uint64, error) {
	return nil, 0, errors.New("the memory of another process can be read on Linux only")
}
