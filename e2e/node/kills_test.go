// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/hold/plugin"
	"github.com/nodegate/nodegate/testcluster/await"
)

// If the agent, the plugin, the kubelet or a hook is killed while pods wait, all pods start in the
// end.
func TestHoldSurvivesKills(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "long")
	off := h.rebootClosed(t)
	h.awaitHeld(t)
	killAll(t, "nodegate-agent")
	h.setReady(t, true)
	h.await(t, false)
	h.awaitStarts(t, off, len(h.boundPods(t)))

	off = h.rebootClosed(t)
	h.awaitHeld(t)
	killAll(t, plugin.Name)
	h.setReady(t, true)
	h.await(t, false)
	h.awaitStarts(t, off, len(h.boundPods(t)))

	off = h.rebootClosed(t)
	h.awaitHeld(t)
	must(t, h.KillKubelet())
	h.setReady(t, true)
	h.await(t, false)
	h.awaitStarts(t, off, len(h.boundPods(t)))

	off = h.rebootClosed(t)
	h.awaitHeld(t)
	killAll(t, plugin.HookName) // the kubelet creates the containers again, and they wait again
	h.awaitHeld(t)
	h.setReady(t, true)
	h.await(t, false)
	h.awaitStarts(t, off, len(h.boundPods(t)))
}

// letsStart are the programs whose end lets held pods start: the plugin, and containerd, which
// runs the plugin.
var letsStart = []string{plugin.Name, "containerd"}

// Whenever the agent, the plugin, a hook, the kubelet or containerd is killed in a boot, all pods
// start in the end, and none is evicted. None starts early, unless the plugin ended.
func TestHoldSurvivesKillsAtAnyTime(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "long")
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	killed, early := make(map[string]int), make(map[string]int)
	for i := range *reboots {
		victim := slices.Concat([]string{agentName, plugin.HookName, "kubelet"}, letsStart)[i%5]
		ended, started := h.rebootKilling(t, victim, random)
		if ended {
			killed[victim]++
		}
		if early[victim] += started; started > 0 && !slices.Contains(letsStart, victim) {
			t.Errorf("%s was killed, and %d pods started before the daemon was ready", victim, started)
		}
	}
	t.Logf("%d reboots: these ran when they were killed: %v; pods that started early: %v", *reboots, killed, early)
}

const (
	// killedWithin is the time, from when a program starts, in which it is killed, and readyWithin
	// that, from when the gate is closed, in which the daemon becomes ready.
	killedWithin = 5 * time.Second
	readyWithin  = 4 * time.Second
)

// rebootKilling reboots the machine, kills a program at a random time, opens the gate at another,
// and waits until all pods have started. It returns whether the program ran when it was killed,
// and the number of pods that started before the daemon was ready.
func (h *host) rebootKilling(t *testing.T, victim string, random *rand.Rand) (ended bool, early int) {
	t.Helper()
	before := uids(h.boundPods(t))
	untilOpen, opened := context.WithCancel(t.Context())
	defer opened()
	killed, killIn := make(chan int, 1), time.Duration(random.Int64N(int64(killedWithin)))
	off := h.rebootClosedWith(t, func() {
		go func() { killed <- killLater(untilOpen, t, victim, killIn) }()
	})
	<-time.After(time.Duration(random.Int64N(int64(readyWithin))))
	ready := time.Now()
	h.setReady(t, true)
	h.await(t, false)
	opened()
	ended = <-killed > 0
	h.awaitStarts(t, off, len(before))
	if remain := intersection(before, uids(h.boundPods(t))); len(remain) != len(before) {
		t.Errorf("of %d pods that were bound before, %d remain", len(before), len(remain))
	}
	for _, s := range h.starts(t) {
		if strings.HasPrefix(s.name, "workload") && !s.at.Before(off) && s.at.Before(ready) {
			early++
		}
	}
	return ended, early
}

// killLater kills a program some time after it has started, and returns how many processes ran. It
// does nothing if the program has not started when the context ends.
func killLater(ctx context.Context, t *testing.T, program string, after time.Duration) int {
	if err := await.Until(ctx, "process of "+program, func(context.Context) error {
		if len(processes(t, program)) == 0 {
			return errors.New("it does not run")
		}
		return nil
	}); err != nil {
		return 0
	}
	<-time.After(after)
	return kill(t, processes(t, program))
}
