// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

const (
	// The delay between attempts to use logind grows from reconnectAfter to reconnectAtMost. On a node
	// without logind, each attempt makes the bus try to start it and log that it cannot.
	reconnectAfter, reconnectAtMost = 5 * time.Second, time.Minute
	// workedAfter is the time after which logind counts as usable. An error is then a new one.
	workedAfter = time.Minute
	// closeLimit limits how long a shutdown waits for the node's gates to close.
	closeLimit = 2 * time.Second
	// closeInterval is the interval at which the agent checks whether the gates are closed.
	closeInterval = 5 * time.Millisecond
	// readInterval is the interval at which the agent checks whether the Node has been read.
	readInterval = 100 * time.Millisecond
	// bootInterval is the interval at which the agent checks whether the Node shows the current boot.
	bootInterval = time.Second
	// announceLimit limits how long the agent tries to announce a shutdown. logind no longer waits
	// then.
	announceLimit = 30 * time.Second
)

// retries are the delays between requests that fail.
var retries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8, Cap: 10 * time.Second}

// followShutdowns announces shutdowns until the context ends.
func (a *Agent) followShutdowns(ctx context.Context) {
	first := wait.Backoff{Duration: reconnectAfter, Cap: reconnectAtMost, Factor: 2, Steps: 10}
	next := first
	var last string // the error that was logged, which is not repeated while it persists
	for {
		began := time.Now()
		err := a.follow(ctx, a.Bus, "nodegate-agent", a.handle)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > workedAfter {
			next, last = first, ""
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			a.Log.Error("shutdowns cannot be announced", "error", last)
		}
		select {
		case <-time.After(next.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// handle announces a shutdown or withdraws an announcement, once the Node has been read: before, it is
// not known what has been announced, nor which gates are open.
func (a *Agent) handle(ctx context.Context, shutdown bool) {
	if shutdown {
		limited, cancel := context.WithTimeout(ctx, announceLimit)
		defer cancel()
		ctx = limited
	}
	read := func(context.Context) (bool, error) { return a.nodes.Synced(), nil }
	if wait.PollUntilContextCancel(ctx, readInterval, true, read) == nil { // fails only if ctx ends
		a.announce(ctx, shutdown)
	}
}

// announce sets the condition that announces the node's shutdown, and returns when the gates are
// closed, or removes a condition that the agent has set. A condition that another writer has set to
// True stays as it is, and the gates close for it, too; one that is False is replaced. Removing is repeated until it succeeds, even if
// the API server rejects it: the gates stay closed until then. The announcement of a former boot is
// removed when the Node shows the current one: until then, all that is known of the node is from the
// former boot, and the controller would conclude that the shutdown was cancelled.
func (a *Agent) announce(ctx context.Context, shutdown bool) {
	announced, foreign := a.announcement()
	switch {
	case foreign:
		a.announced = false
		if shutdown {
			a.awaitClosed(ctx)
		}
	case shutdown:
		a.announced = true
		a.Log.Info("the machine shuts down")
		now := time.Now().UTC().Format(time.RFC3339)
		a.patchCondition(ctx, map[string]any{
			"type": shutdownCondition, "status": conditionTrue,
			"reason": "PrepareForShutdown", "message": shutdownMessagePrefix + a.Boot,
			"lastTransitionTime": now, "lastHeartbeatTime": now,
		})
		a.awaitClosed(ctx)
	case announced && !a.announced && !a.awaitBoot(ctx): // the context has ended
	case announced || a.announced:
		if a.patchCondition(ctx, map[string]any{"type": shutdownCondition, "$patch": "delete"}) {
			a.Log.Info("the announcement of a shutdown is withdrawn")
		}
		a.announced = false
	}
}

// announcement reports whether a condition announces the node's shutdown, and whether another
// writer has set it.
func (a *Agent) announcement() (announced, foreign bool) {
	n := a.node()
	if n == nil {
		return false, false
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == shutdownCondition && c.Status == conditionTrue {
			return true, !strings.HasPrefix(c.Message, shutdownMessagePrefix)
		}
	}
	return false, false
}

// patchCondition merges a condition into the Node's status, and reports whether it has. It tries
// until it succeeds, because the API server may be unavailable, until another writer announces a
// shutdown, because its condition must not be changed, until the Node no longer exists, or until the
// context ends.
func (a *Agent) patchCondition(ctx context.Context, condition map[string]any) (done bool) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		panic(err) // it consists of strings and times
	}
	failed := false
	_ = retries.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // fails only if ctx ends
		if _, foreign := a.announcement(); foreign {
			return true, nil
		}
		err := a.Client.Patch(ctx, a.nodePath()+"/status", types.StrategicMergePatchType, patch)
		if err != nil && !failed {
			failed = true
			a.Log.Error("the Node's condition cannot be changed yet", "error", fmt.Errorf("patching the Node's status: %w", err).Error())
		}
		done = err == nil
		var status *jsonclient.StatusError
		gone := errors.As(err, &status) && status.Reason == reasonNotFound // not any 404, such as that of a proxy
		return done || gone, nil
	})
	return done
}

// awaitBoot returns when the Node shows the current boot or does not exist, or when the context ends,
// and reports whether it has not.
func (a *Agent) awaitBoot(ctx context.Context) bool {
	return wait.PollUntilContextCancel(ctx, bootInterval, true, func(context.Context) (bool, error) { // fails only if ctx ends
		n := a.node()
		return n == nil || n.Status.NodeInfo.BootID == a.Boot, nil
	}) == nil
}

// awaitClosed returns when all gates with a record on the Node are closed, except those that shutdowns
// do not close, or after closeLimit. A gate that the agent does not know, such as one from a file, may
// close.
func (a *Agent) awaitClosed(ctx context.Context) {
	staysOpen := make(map[string]bool)
	for _, ng := range a.gates.All() {
		staysOpen[ng.Name] = ng.staysOpen()
	}
	_ = wait.PollUntilContextTimeout(ctx, closeInterval, closeLimit, true, func(context.Context) (bool, error) { // fails only if the time is over
		n := a.node()
		return n == nil || !hasOpenGate(n, staysOpen), nil
	})
}

// hasOpenGate reports whether a gate is open on the Node, except those that stay open.
func hasOpenGate(n *node, staysOpen map[string]bool) bool {
	for key, value := range n.Annotations {
		gate, ok := strings.CutPrefix(key, recordAnnotationPrefix)
		if !ok || staysOpen[gate] {
			continue
		}
		if r, err := parseRecord(value); err == nil && r.State == stateOpen {
			return true
		}
	}
	return false
}
