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
	"github.com/nodegate/nodegate/testcluster"
)

// A Profiled is a turn of nodegate of which CPU profiles are taken.
type Profiled struct {
	// Name is the profile's name. Figures with the same turns share a profile.
	Name string
	// Server selects the API server's profile, which is taken at the same time, instead of
	// nodegate's.
	Server bool
	// For is the duration of the profile, which should be about that of the turn.
	For time.Duration
	// Nodes is the number of nodes that are closed at the beginning.
	Nodes int
	// Gate contains additional fields of the gate's spec.
	Gate map[string]any
	// Turn performs a turn of the figure.
	Turn func(context.Context, *Env, *Subject) error
	// Take takes the profiles instead of the above, if it is set.
	Take func(context.Context, *Env) (profiles, error)
}

// profiledLines is the number of functions in a profile.
const profiledLines = 40

// Profile takes CPU profiles of nodegate and of the API server during a turn, and writes
// their most expensive functions to files in a directory. It returns the name of the
// figure's file. A profile that exists already is not taken again.
func (e *Env) Profile(ctx context.Context, p Profiled, dir string) (file string, err error) {
	own, server := p.Name+".txt", p.Name+"-kube-apiserver.txt"
	if file = own; p.Server {
		file = server
	}
	if slices.Contains(e.profiles, p.Name) {
		return file, nil
	}
	take := p.Take
	if take == nil {
		take = p.take
	}
	raw, err := take(ctx, e)
	if err != nil {
		return "", fmt.Errorf("taking a profile: %w", err)
	}
	for name, content := range map[string][]byte{own: raw.own, server: raw.server} {
		if content == nil {
			continue
		}
		text, err := top(ctx, content)
		if err == nil {
			err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), text, 0o644))
		}
		if err != nil {
			return "", fmt.Errorf("writing a profile: %w", err)
		}
	}
	e.profiles = append(e.profiles, p.Name)
	return file, nil
}

// profiles are the profiles of nodegate and of the API server in pprof's format, or nil.
type profiles struct{ own, server []byte }

func (p Profiled) take(ctx context.Context, e *Env) (raw profiles, err error) {
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
	e.Observer.Reset()
	var all errgroup.Group
	all.Go(func() (err error) {
		raw.own, err = fetchProfile(ctx, http.DefaultClient, "http://"+address, p.For)
		return err
	})
	all.Go(func() (err error) {
		raw.server, err = serverProfile(ctx, e.Cluster, p.For)
		return err
	})
	all.Go(func() error { return p.Turn(ctx, e, s) })
	err = all.Wait() // before raw is read
	return raw, err
}

func serverProfile(ctx context.Context, c *testcluster.Cluster, duration time.Duration) ([]byte, error) {
	client, err := rest.HTTPClientFor(c.Admin())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return fetchProfile(ctx, client, c.Admin().Host, duration)
}

func fetchProfile(ctx context.Context, client *http.Client, host string, duration time.Duration) ([]byte, error) {
	return meter.Get(ctx, client, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", host, max(1, int(duration.Seconds()))))
}

// top returns the functions with the most CPU time, first excluding and then including
// their callees, in the format of the go command.
func top(ctx context.Context, raw []byte) ([]byte, error) {
	file, err := os.CreateTemp("", "nodegate-profile-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(raw)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, order := range []string{"-flat", "-cum"} {
		command := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", order, fmt.Sprintf("-nodecount=%d", profiledLines), file.Name())
		output, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("running pprof: %w", err)
		}
		fmt.Fprintf(&text, "%s\n", output)
	}
	return text.Bytes(), nil
}
