#!/usr/bin/env bash
# Runs every check that needs no API server; each says what it found and how to
# mend it. With names, runs those only: hack/verify.sh imports codegen
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

modules=(. hack/tools hack/controlplane/binaries)

format() {
  local files
  files=$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l)
  [ -z "$files" ] || { echo "run gofmt -w on:"; echo "$files"; return 1; }
}

vet() { go vet ./... && (cd hack/tools && go vet ./...); }

static() { # staticcheck, and klog's own rules for structured, contextual logs
  (cd hack/tools && GOBIN=$tools go install honnef.co/go/tools/cmd/staticcheck sigs.k8s.io/logtools/logcheck) &&
    "$tools/staticcheck" ./cmd/... ./hack/... ./pkg/apis/... ./pkg/canary/... ./pkg/controller/... ./pkg/informer/... &&
    "$tools/logcheck" -check-contextual ./cmd/... ./pkg/canary/... ./pkg/controller/... ./pkg/informer/...
}

tidy() {
  local module
  for module in "${modules[@]}"; do
    (cd "$module" && go mod tidy -diff) || { echo "run go mod tidy in $module"; return 1; }
  done
}

codegen() {
  local copy=$tools/copy
  mkdir -p "$copy/hack" "$copy/manifests" && cp -r go.mod go.sum pkg "$copy/" &&
    cp hack/boilerplate.go.txt "$copy/hack/" && cp -r manifests/crd "$copy/manifests/" &&
    hack/update-codegen.sh "$copy" &&
    diff -r pkg/generated "$copy/pkg/generated" && diff -r pkg/apis "$copy/pkg/apis" &&
    diff -r manifests/crd "$copy/manifests/crd" ||
    { echo "generated files are not what their sources give: run make generate"; return 1; }
}

# What the product must not depend on, and why.
forbidden=(
  "sigs.k8s.io/controller-runtime|Steadwatch is for platforms that avoid it, and shows the pipeline that it hides"
  "k8s.io/kubernetes|not made to be imported: no stable API, and it drags in the whole control plane"
  "k8s.io/apiserver|server code: a client has no use for it, and its dependencies collide with embedders'"
  "k8s.io/component-base|registers flags and metrics globally behind an embedder's back"
  "k8s.io/apiextensions-apiserver|server code: the CRDs are plain YAML"
  "go.etcd.io/etcd|only the API server speaks to etcd"
  "github.com/stretchr/testify|go-cmp and the standard library say more when they fail"
  "github.com/onsi|tests are plain Go"
)

imports() {
  local deps why entry bad=0 package importers
  deps=$(go list -deps -test ./cmd/... ./pkg/... ./hack/...) || return 1
  for entry in "${forbidden[@]}"; do
    why=${entry#*|} package=${entry%%|*}
    if grep -qE "^$package(/|$)" <<<"$deps"; then
      echo "$package must not be imported: $why"; bad=1
    fi
  done
  # Siblings know nothing of each other; cmd joins them.
  for package in informer canary controller; do
    importers=$(go list -deps "./pkg/$package" | grep -E "^github.com/steadwatch/steadwatch/pkg/(informer|canary|controller)$" | grep -v "/$package$")
    [ -z "$importers" ] || { echo "pkg/$package imports its sibling $importers: pass a func or a value through cmd instead"; bad=1; }
  done
  importers=$(go list -f '{{.ImportPath}} {{join .Imports " "}}' ./... | grep 'github.com/prometheus/client_golang' |
    cut -d' ' -f1 | grep -vE '/(cmd/controller|pkg/controller/metrics)$')
  [ -z "$importers" ] || { echo "client_golang belongs to pkg/controller/metrics and cmd, so that an embedder may use another: $importers"; bad=1; }
  return $bad
}

manifests() { # what kubectl apply -k would send must at least be well-formed
  local kubectl
  kubectl="$(go run ./hack/controlplane/cmd/controlplane build kubectl)/kubectl" || return 1
  "$kubectl" kustomize manifests >/dev/null && "$kubectl" kustomize manifests/namespaced >/dev/null &&
    "$kubectl" kustomize manifests/monitoring >/dev/null || return 1
  # A component is no use alone: what it is for changes with it, in either variant.
  local variant here out
  mkdir -p "$tools/with" && here=$(realpath --relative-to="$tools/with" .)
  for variant in manifests manifests/namespaced; do
    printf '%s\n' "resources: [$here/$variant]" "components: [$here/manifests/components/tls-secrets]" >"$tools/with/kustomization.yaml" &&
      out=$("$kubectl" kustomize "$tools/with") || return 1
    grep -q -- '- --tls-secrets$' <<<"$out" && grep -q '^  - secrets$' <<<"$out" ||
      { echo "components/tls-secrets changes nothing in $variant: do its targets still have these names?"; return 1; }
    if "$kubectl" kustomize "$variant" | grep -E '^  - secrets$|--tls-secrets'; then
      echo "$variant asks for Secrets by itself: only components/tls-secrets may"; return 1
    fi
  done
}

checks=("$@")
[ $# -gt 0 ] || checks=(format vet static tidy imports codegen manifests)
failed=()
for check in "${checks[@]}"; do
  start=$SECONDS
  if $check; then
    echo "verify $check: ok ($((SECONDS - start)) s)"
  else
    echo "verify $check: FAILED"
    failed+=("$check")
  fi
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
