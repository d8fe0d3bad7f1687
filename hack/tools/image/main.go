// Command image writes a container image archive that holds one static binary,
// for machines without docker, podman, nerdctl or buildah. It is the image of
// the Dockerfile: an empty base, no root, the binary as entrypoint.
//
//	image -binary controller -name registry/name:tag -out image.tar
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	binary := flag.String("binary", "", "static linux binary")
	image := flag.String("name", "", "image name with tag")
	arch := flag.String("arch", runtime.GOARCH, "architecture that the binary is for")
	out := flag.String("out", "image.tar", "archive to write")
	flag.Parse()
	if err := write(*binary, *image, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(binary, image, arch, out string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("-name %q: want registry/name:tag: %w", image, err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	// No times and no owners: the same binary gives the same image.
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "controller", Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{User: "65532:65532", Entrypoint: []string{"/controller"}}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, img)
}
