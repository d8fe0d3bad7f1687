#!/usr/bin/env bash
# The measurements that docs/measurements.md keeps: 5,000 WebApps from nothing,
# under default flags and without a limit that matters. About 20 minutes on 2 idle
# cores. Progress goes to the terminal, Markdown to stdout; arguments go to both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go run ./hack/scale -n 5000 "$@"
echo
go run ./hack/scale -n 5000 -kube-api-qps 1000 -kube-api-burst 1000 "$@"
