// SPDX-License-Identifier: Apache-2.0

// Command image builds nodegate's container image, which contains only static
// programs, for several platforms, without a container runtime and without a
// registry. The same source and Go version result in an identical image.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// options are the flags.
type options struct {
	source, packages, platforms, out, version, name, push, repository string
}

func main() {
	var o options
	flag.StringVar(&o.source, "source", ".", "the directory of the module to build")
	flag.StringVar(&o.packages, "packages", "./cmd/nodegate", "the programs, separated by commas; the image runs the first one")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "the platforms, separated by commas")
	flag.StringVar(&o.out, "out", "bin/image", "the directory of the OCI layout; the archive has the same name with .tar")
	flag.StringVar(&o.version, "version", "", "the version for the labels (default: output of git describe)")
	flag.StringVar(&o.name, "name", "ghcr.io/nodegate/nodegate", "the image's name in the archive, without a tag; the tag is the version")
	flag.StringVar(&o.push, "push", "", "push the image to this name, with the credentials of 'docker login'")
	flag.StringVar(&o.repository, "repository", "https://github.com/nodegate/nodegate", "the URL of the source, for the labels")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	release, err := o.release(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nodegate-image-")
	if err != nil {
		return fmt.Errorf("creating a directory for programs: %w", err)
	}
	defer os.RemoveAll(dir)
	var programs []compiled
	for platform := range strings.SplitSeq(o.platforms, ",") {
		p, err := o.build(ctx, dir, platform)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	index, err := newIndex(programs, release)
	if err != nil {
		return err
	}
	if err := write(o.out, index, release); err != nil {
		return err
	}
	if err := describe(os.Stdout, index, o.out); err != nil {
		return err
	}
	if o.push == "" {
		return nil
	}
	return push(ctx, o.push, index)
}

// settings are those settings of Go that affect a program, which would otherwise be the
// builder's. Go uses the value of 'go env -w' if a variable is empty, so none is. A comma is an
// empty list of experiments. hack/dist has the same settings.
var settings = []string{
	"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=,", "GOFIPS140=off", "GOFLAGS=-mod=readonly", "GOWORK=off",
}

// build builds the programs for a platform: static, and without local paths.
func (o *options) build(ctx context.Context, dir, platform string) (compiled, error) {
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return compiled{}, fmt.Errorf("parsing platform %q: %w", platform, err)
	}
	out := compiled{platform: *p, dir: filepath.Join(dir, p.OS+"-"+p.Architecture)}
	for pkg := range strings.SplitSeq(o.packages, ",") {
		out.names = append(out.names, filepath.Base(pkg))
		command := exec.CommandContext(ctx, "go", "build", "-buildvcs=true", "-trimpath", "-ldflags=-s -w -buildid=", "-o", out.dir+"/", pkg)
		command.Dir = o.source
		command.Env = slices.Concat(os.Environ(), settings, []string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture})
		command.Stdout, command.Stderr = os.Stderr, os.Stderr
		if err := command.Run(); err != nil {
			return compiled{}, fmt.Errorf("building %s for %s: %w", pkg, platform, err)
		}
	}
	return out, out.check()
}

// release returns the version and commit of the source, from git.
func (o *options) release(ctx context.Context) (release, error) {
	r := release{version: o.version, repository: o.repository}
	commit, err := o.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return r, err
	}
	revision, seconds, _ := strings.Cut(commit, " ")
	if r.version == "" {
		if r.version, err = o.git(ctx, "describe", "--tags", "--always", "--dirty"); err != nil {
			return r, err
		}
	}
	at, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), seconds), 10, 64)
	if err != nil {
		return r, fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	r.revision, r.created = revision, time.Unix(at, 0).UTC()
	ref, err := name.ParseReference(cmp.Or(o.push, o.name+":"+r.version))
	if err != nil {
		return r, fmt.Errorf("parsing the image's name: %w", err)
	}
	r.name = ref.Name()
	return r, nil
}

func (o *options) git(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = o.source
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("running git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}

// push pushes the image to a registry.
func push(ctx context.Context, image string, index v1.ImageIndex) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return fmt.Errorf("parsing the image's name: %w", err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	fmt.Printf("pushed %s@%s\n", ref.Context(), digest)
	return nil
}
