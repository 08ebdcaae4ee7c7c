// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nodegate/nodegate/internal/hold"
)

const (
	// HookName is the name by which the runtime calls the hook.
	HookName = "nodegate-hold"
	// attempt is how long the hook waits at most. The kubelet allows two minutes for a request
	// to the runtime by default, and then creates the container again.
	attempt = 100 * time.Second
	// interval is how often the hook looks whether the pod may start.
	interval = 50 * time.Millisecond
)

// Waiter waits until a pod may start.
type Waiter struct {
	Store  hold.Store
	Boot   string
	Uptime func() time.Duration
	Log    *slog.Logger

	Pod hold.Pod
	// Name is the namespace and name of the pod, for the log.
	Name string
	// Since is the uptime at which the pod began to wait.
	Since time.Duration

	// background, if not nil, calls giveUp, which waits for the disk, without waiting for it.
	background func(giveUp func(waited time.Duration), waited time.Duration)

	gate  string // for which the pod waits, as logged
	state *hold.State
	file  fs.FileInfo // of state
}

// hook returns the hook that waits. ParseHook reads its arguments. The agent knows the pod, so it does
// not matter whether the pod is in the node's network namespace.
func (w *Waiter) hook(program string) *api.Hook {
	return &api.Hook{Path: program, Args: []string{
		HookName, "-boot=" + w.Boot, "-uid=" + w.Pod.UID, "-pod=" + w.Name, "-since=" + w.Since.String(), "-gate=" + w.gate,
	}}
}

// ParseHook sets the fields that the hook's arguments contain.
func (w *Waiter) ParseHook(args []string) error {
	flags := flag.NewFlagSet(HookName, flag.ContinueOnError)
	flags.StringVar(&w.Boot, "boot", "", "the ID of the boot")
	flags.StringVar(&w.Pod.UID, "uid", "", "the UID of the pod")
	flags.StringVar(&w.Name, "pod", "", "the namespace and name of the pod")
	flags.DurationVar(&w.Since, "since", 0, "the uptime at which the pod began to wait")
	flags.StringVar(&w.gate, "gate", "", "the gate for which the pod waits")
	flags.Bool("host-network", false, "ignored; former plugins, which run until the runtime restarts, add it")
	return flags.Parse(args)
}

// ErrWaits means that the container must not start: the pod has to wait longer than one attempt,
// or is being deleted.
var ErrWaits = errors.New("nodegate holds this pod")

// Wait returns when the pod may start, or ErrWaits.
func (w *Waiter) Wait(ctx context.Context) error {
	began := w.Uptime()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for w.mustWait() {
		if w.Uptime()-began >= attempt || w.deleted() {
			return fmt.Errorf("%w, because gate %s is closed on the node", ErrWaits, w.gate)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// deleted reports whether the pod is being deleted, or no longer exists: the agent knew it when it got
// the hook. A pod remains until the runtime has answered the kubelet.
func (w *Waiter) deleted() bool {
	bound, known := w.state.Pods[w.Pod.UID]
	return bound.Terminating || !known
}

// mustWait reports whether the pod has to wait, and logs a change of the answer.
func (w *Waiter) mustWait() bool {
	if err := w.read(); err != nil {
		w.Log.Error("cannot read the state, the pod does not wait", "pod", w.Name, "err", err)
		return false
	}
	before := w.gate
	waited := w.Uptime() - w.Since
	answer := w.state.Decide(w.Pod, w.Boot, w.Uptime(), waited)
	w.gate = answer.Gate
	switch {
	case answer.Held:
		if before != answer.Gate {
			w.Log.Info("pod waits", "pod", w.Name, "gate", answer.Gate)
		}
		return true
	case answer.Gate != "":
		if before != "" { // else an earlier attempt has logged it
			w.Log.Warn("pod has waited long enough, and starts though the gate is closed", "pod", w.Name, "gate", answer.Gate)
		}
		if w.background == nil {
			w.giveUp(waited)
		} else {
			w.background(w.giveUp, waited)
		}
	case before != "":
		w.Log.Info("pod starts", "pod", w.Name, "gate", before)
	}
	return false
}

// read reads the state if it has changed.
func (w *Waiter) read() (err error) {
	file, changed := w.Store.Changed(w.file)
	if w.state == nil || changed {
		w.state, err = w.Store.Read()
		w.file = file
	}
	return err
}

// giveUp removes the gates whose time is over from the state, if the agent has not written it in
// this boot: the agent may have been uninstalled, and no further boot must wait for them.
func (w *Waiter) giveUp(waited time.Duration) {
	file, _ := w.Store.Changed(nil)
	state, err := w.Store.Read() // the agent may have written just now
	if err != nil || state.Boot == w.Boot || !state.Expire(waited) {
		return
	}
	w.Log.Debug("removing gates whose time is over from the state") // the disk may need seconds
	updated, err := w.Store.Update(file, state)
	switch {
	case err != nil:
		w.Log.Error("cannot remove gates from the state", "err", err)
	case updated:
		w.Log.Warn("the agent has written nothing since the boot, no pod waits for gates whose time is over until it does")
	}
}
