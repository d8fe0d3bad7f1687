#!/usr/bin/env bash
# What the queue costs beside client-go's: Add, Get and Done of a key, in one run,
# compared by benchstat. Arguments go to go test: hack/bench-queue.sh -count 10
# Give it an idle machine, or read cpu-ns/key, which others disturb least.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=$(mktemp)
trap 'rm -f "$results"' EXIT
go test -run '^$' -bench Queue -benchmem -count 6 "$@" ./pkg/controller | tee "$results" >&2
go tool -modfile=hack/tools/go.mod benchstat -col /queue "$results"
