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

// A Profiled is a turn of nodegate that is profiled instead of measured.
type Profiled struct {
	// Name is the profile's name. Figures with the same turns share a profile.
	Name string
	// Server selects the profile of the API server, which is taken in the same
	// turn, instead of nodegate's.
	Server bool
	// For is the duration of the profile, which should be about that of the turn.
	For time.Duration
	// Nodes is the number of the fleet's nodes that are closed at the beginning.
	Nodes int
	// Gate contains additional fields of the gate's spec.
	Gate map[string]any
	// Turn performs a turn of the figure. Its measurements are discarded.
	Turn func(context.Context, *Env, *Subject) error
	// Otherwise takes the profiles in another way, instead of all above.
	Otherwise func(context.Context, *Env) (rawProfiles, error)
}

// profiledLines is the number of functions in a profile.
const profiledLines = 40

// Profile takes CPU profiles of nodegate and of the API server during a turn, and
// writes which functions they were in to files of the profile's name in a directory.
// It returns the name of the figure's profile. Existing profiles are not taken
// again.
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

// top returns the functions with the most CPU time of their own, and below them
// those with the most including callees, in the format of the go command.
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
