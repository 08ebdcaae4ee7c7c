// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/internal/testbed"
)

// A Profiled is a turn of nodegate's that is not measured, but looked into.
type Profiled struct {
	// Name is the profile's; figures whose turns are the same share one.
	Name string
	// Server tells of the API server, into which the same turn looks, instead of
	// nodegate.
	Server bool
	// For is for how long, which should be about what the turn takes.
	For time.Duration
	// Nodes is how many of the fleet's are closed when it begins.
	Nodes int
	// Gate is what the gate has besides.
	Gate map[string]any
	// Turn does what the figure's turns do. Its figures are dropped.
	Turn func(context.Context, *Env, *Subject) error
	// Otherwise takes the profiles, instead of all that.
	Otherwise func(context.Context, *Env) (rawProfiles, error)
}

// profiledLines is how many functions are told.
const profiledLines = 40

// Profile takes CPU profiles of nodegate and of the API server during a turn, and
// writes which functions they were in to files of the profile's name in a directory.
// It returns the name of the one that the figure is about. What was taken before is
// not taken again.
func (e *Env) Profile(ctx context.Context, p Profiled, dir string) (file string, err error) {
	own, server := p.Name+".txt", p.Name+"-kube-apiserver.txt"
	if file = own; p.Server {
		file = server
	}
	if slices.Contains(e.profiles, p.Name) {
		return file, nil
	}
	raw, err := e.takeProfiles(ctx, p)
	if err != nil {
		return "", fmt.Errorf("taking a profile: %w", err)
	}
	for name, content := range map[string][]byte{own: raw.own, server: raw.server} {
		if content == nil {
			continue
		}
		if err := writeProfile(ctx, content, filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("writing a profile: %w", err)
		}
	}
	e.profiles = append(e.profiles, p.Name)
	return file, nil
}

func writeProfile(ctx context.Context, raw []byte, path string) error {
	text, err := top(ctx, raw)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// rawProfiles are as the processes serve them; nil of one that has no part.
type rawProfiles struct{ own, server []byte }

func (e *Env) takeProfiles(ctx context.Context, p Profiled) (raw rawProfiles, err error) {
	if p.Otherwise != nil {
		return p.Otherwise(ctx, e)
	}
	address, err := testbed.FreeAddress()
	if err != nil {
		return raw, err
	}
	if err := e.prepare(ctx, p.Nodes, p.Gate); err != nil {
		return raw, err
	}
	if err := e.Reset(ctx, nil, p.Nodes); err != nil {
		return raw, err
	}
	controller, err := e.StartNodegate(ctx, "--pprof-bind-address", address)
	if err != nil {
		return raw, err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	s := &Subject{Name: nodegateName, PID: controller.PID()}
	if err := errors.Join(e.warmUp(ctx, s), e.Reset(ctx, s, 1)); err != nil {
		return raw, err
	}
	administrator, err := rest.HTTPClientFor(e.Cluster.Admin())
	if err != nil {
		return raw, fmt.Errorf("creating a client: %w", err)
	}
	e.Observer.Reset()
	var all errgroup.Group
	all.Go(func() (err error) {
		raw.own, err = fetchProfile(ctx, http.DefaultClient, "http://"+address, p.For)
		return err
	})
	all.Go(func() (err error) {
		raw.server, err = fetchProfile(ctx, administrator, e.Cluster.Admin().Host, p.For)
		return err
	})
	all.Go(func() error { return p.Turn(ctx, e, s) })
	err = all.Wait() // before raw is read
	return raw, err
}

func fetchProfile(ctx context.Context, client *http.Client, host string, duration time.Duration) ([]byte, error) {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", host, max(1, int(duration.Seconds())))
	return meter.Get(ctx, client, url)
}

// top returns the functions in which the processor was, and below them those on
// whose behalf, as the go command tells them.
func top(ctx context.Context, raw []byte) ([]byte, error) {
	file, err := os.CreateTemp("", "nodegate-profile-*")
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(raw)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	var text bytes.Buffer
	for _, order := range []string{"-flat", "-cum"} {
		command := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", order, fmt.Sprintf("-nodecount=%d", profiledLines), file.Name())
		output, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("reading a profile: %w", err)
		}
		fmt.Fprintf(&text, "%s\n", output)
	}
	return text.Bytes(), nil
}
