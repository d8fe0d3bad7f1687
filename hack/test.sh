#!/usr/bin/env bash
# The README's test command. Builds the control plane first (once per version and
# machine, into the user's cache), then runs every test with the race detector.
# Arguments go to go test: hack/test.sh -run TestDrain ./pkg/controller/webapp
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go run ./hack/controlplane/cmd/controlplane build
[ $# -gt 0 ] || set -- ./...
race=-race
if ! command -v "$(go env CC | cut -d' ' -f1)" >/dev/null; then
  echo "no C compiler, which the race detector needs: testing without it"
  race=
fi
exec go test $race -timeout 20m "$@"
