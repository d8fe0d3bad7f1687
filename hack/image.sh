#!/usr/bin/env bash
# Builds the image $1 (name:tag) with whatever builder is there: docker, podman,
# nerdctl or buildah by the Dockerfile; with none of them, the same image from a
# binary built here, as an archive for `docker load`, `podman load` or
# `kind load image-archive`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=${1:?usage: hack/image.sh NAME:TAG}
version=${image##*:}

for builder in docker podman nerdctl; do
  if command -v $builder >/dev/null && $builder info >/dev/null 2>&1; then
    echo "building $image with $builder"
    exec $builder build --build-arg VERSION="$version" -t "$image" .
  fi
done
if command -v buildah >/dev/null; then
  echo "building $image with buildah"
  exec buildah build --build-arg VERSION="$version" -t "$image" .
fi

archive=bin/image.tar
echo "no docker, podman, nerdctl or buildah that answers: building $archive"
arch=${GOARCH:-$(go env GOARCH)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p bin
CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath \
  -ldflags "-s -w -X main.version=$version" -o "$work/controller" ./cmd/controller
(cd hack/tools && GOARCH= go build -o "$work/image" ./image)
"$work/image" -binary "$work/controller" -arch "$arch" -name "$image" -out "$archive"
echo "wrote $archive: 'docker load -i $archive' or 'kind load image-archive $archive'"
