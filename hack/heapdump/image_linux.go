package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// chunk is how much of the image is read at once.
const chunk = 1 << 20

// search says how often each pattern is in what the process can write to, and how large
// that is. The process stands still meanwhile.
func search(pid int, patterns ...pattern) (found []int, size uint64, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, 0, fmt.Errorf("stop process %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	areas, err := writable(pid)
	if err != nil {
		return nil, 0, err
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, 0, fmt.Errorf("%w (it takes the right to trace the process)", err)
	}
	defer memory.Close()
	overlap := 0
	for _, p := range patterns {
		overlap = max(overlap, p.longest()-1)
	}
	found = make([]int, len(patterns))
	buffer := make([]byte, chunk+overlap)
	for _, a := range areas {
		size += a.to - a.from
		for at := a.from; at < a.to; at += chunk {
			// The overlap is read again with the next chunk: a match is counted where it
			// begins.
			length := min(uint64(len(buffer)), a.to-at)
			n, err := memory.ReadAt(buffer[:length], int64(at))
			if n == 0 && err != nil {
				return nil, 0, fmt.Errorf("read %s: %w", a.name, err)
			}
			for i, p := range patterns {
				found[i] += p.count(buffer[:n], chunk)
			}
		}
	}
	return found, size, nil
}

type area struct {
	from, to uint64
	name     string
}

// writable are the mappings that a process can write to: the Go heap, stacks, data.
func writable(pid int) ([]area, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var areas []area
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var a area
		var access string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &a.from, &a.to, &access); err != nil {
			return nil, fmt.Errorf("parse %s: %q: %w", file.Name(), lines.Text(), err)
		}
		if strings.HasPrefix(access, "rw") {
			a.name = lines.Text()
			areas = append(areas, a)
		}
	}
	if len(areas) == 0 {
		return nil, fmt.Errorf("%s has no writable mappings", file.Name())
	}
	return areas, nil
}
