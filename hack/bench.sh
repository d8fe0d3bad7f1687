#!/usr/bin/env bash
# The measurements that docs/measurements.md and docs/queue.md keep: decoding a list,
# finding the ApplicationRoutes that a change concerns, the initial sync of 50,000
# objects, the queue beside client-go's, and 5,000 WebApps from nothing, under default
# flags and without a limit that matters. About an hour on 2 idle cores. Progress goes
# to the terminal, results to stdout; arguments go to the last two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
(cd hack/tools && GOBIN=$tools go install golang.org/x/perf/cmd/benchstat)
go test ./pkg/informer -run '^$' -bench 'ListDecode$' -benchmem -cpu 1,2 -count 6 -benchtime 5x | tee /dev/stderr | "$tools/benchstat" -col /by -
go test ./pkg/informer -run '^$' -bench ListDecodeByTurns -cpu 1,2 -count 3 -benchtime 20x
go test ./pkg/controller/applicationroute -run '^$' -bench 'ServiceChanged|Hostname' -cpu 1 -count 6 | tee /dev/stderr | "$tools/benchstat" -col /by -
echo
go run ./hack/syncbench -n 50000
echo
hack/bench-queue.sh
echo
go run ./hack/scale -n 5000 "$@"
echo
go run ./hack/scale -n 5000 -kube-api-qps 1000 -kube-api-burst 1000 "$@"
