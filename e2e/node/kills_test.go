// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"math/rand/v2"
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
	for _, end := range []func(){
		func() { killAll(t, agentName) },
		func() { killAll(t, plugin.Name) },
		func() { must(t, h.KillKubelet()) },
		func() {
			killAll(t, plugin.HookName) // the kubelet creates the containers again, and they wait again
			h.awaitHeld(t)
		},
	} {
		off := h.rebootClosed(t)
		h.awaitHeld(t)
		end()
		h.setReady(t, true)
		h.await(t, false)
		h.awaitStarts(t, off, len(h.boundPods(t)))
	}
}

// Whenever the agent, the plugin, a hook, the kubelet or containerd is killed in a boot, all pods
// start in the end, and none is evicted. None starts early, unless the plugin was killed, which
// containerd does not start again.
func TestHoldSurvivesKillsAtAnyTime(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "long")
	victims := []string{agentName, plugin.HookName, "kubelet", "containerd", plugin.Name}
	killed, early := make(map[string]int), make(map[string]int)
	boots := max(*reboots, len(victims))
	for i := range boots {
		victim := victims[i%len(victims)]
		ended, started := h.rebootKilling(t, victim)
		if ended {
			killed[victim]++
		}
		if early[victim] += started; started > 0 && victim != plugin.Name {
			t.Errorf("%s was killed, and %d pods started before the daemon was ready", victim, started)
		}
	}
	if len(killed) < len(victims)-1 { // a hook may end first
		t.Errorf("only these ran when they were killed: %v", killed)
	}
	t.Logf("%d reboots: these ran when they were killed: %v; pods that started early: %v", boots, killed, early)
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
func (h *host) rebootKilling(t *testing.T, victim string) (ended bool, early int) {
	t.Helper()
	before := uids(h.boundPods(t))
	untilOpen, opened := context.WithCancel(t.Context())
	defer opened()
	killed := make(chan int, 1)
	off := h.rebootClosedWith(t, func() {
		go func() { killed <- killLater(untilOpen, t, victim, rand.N(killedWithin)) }()
	})
	<-time.After(rand.N(readyWithin))
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
