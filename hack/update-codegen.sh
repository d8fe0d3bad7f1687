#!/usr/bin/env bash
# Regenerates deepcopy, clientset, listers, apply configurations and CRDs below
# the root given (default: this checkout). No informers: ours are assembled by
# hand. verify-codegen.sh runs it on a copy.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=${1:-$here}
module=github.com/steadwatch/steadwatch
header=$root/hack/boilerplate.go.txt

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
(cd "$here/hack/tools" && GOBIN=$tools go install \
  k8s.io/code-generator/cmd/{deepcopy-gen,client-gen,lister-gen,applyconfiguration-gen} \
  sigs.k8s.io/controller-tools/cmd/controller-gen)

cd "$root"
apis=($module/pkg/apis/platform/v1alpha1 $module/pkg/apis/networking/v1alpha1)
rm -rf pkg/generated && mkdir -p pkg/generated
rm -f pkg/apis/*/*/zz_generated.*.go

"$tools/deepcopy-gen" --go-header-file "$header" --output-file zz_generated.deepcopy.go "${apis[@]}"
"$tools/applyconfiguration-gen" --go-header-file "$header" \
  --output-dir pkg/generated/applyconfiguration --output-pkg $module/pkg/generated/applyconfiguration "${apis[@]}"
"$tools/client-gen" --go-header-file "$header" --clientset-name versioned \
  --input-base '' --input "$(IFS=,; echo "${apis[*]}")" \
  --apply-configuration-package $module/pkg/generated/applyconfiguration \
  --output-dir pkg/generated/clientset --output-pkg $module/pkg/generated/clientset
"$tools/lister-gen" --go-header-file "$header" \
  --output-dir pkg/generated/listers --output-pkg $module/pkg/generated/listers "${apis[@]}"
"$tools/controller-gen" crd:maxDescLen=2000 paths=./pkg/apis/... output:crd:dir=manifests/crd
