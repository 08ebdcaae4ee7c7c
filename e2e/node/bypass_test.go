// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/testcluster/await"
)

// After a power cut, the kubelet starts the pods that were bound before, regardless of
// taints. Those that really started before the gate opened are named as certain, and only
// those: not a pod whose init container waits for the daemon, as the documentation recommends.
func TestBypassedPods(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	must(t, await.Until(t.Context(), "workloads", func(context.Context) error {
		if all := h.starts(t); count(all, "workload", time.Time{}) < 5 || count(all, "patient", time.Time{}) < 2 {
			return fmt.Errorf("%d containers have started", len(all))
		}
		return nil
	}))
	off := h.rebootClosed(t)
	h.awaitStart(t, "workload", off)
	// Start times are in seconds, and a start close to the opening is not certain.
	must(t, await.Pause(t.Context(), 4*time.Second))
	h.setReady(t, true)
	record, err := gate.ParseRecord(h.await(t, false).Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
	must(t, err)
	note := h.awaitBypassed(t, off)
	certain, _, _ := strings.Cut(note, "; ") // what is possible comes after it
	for _, s := range h.starts(t) {
		named := strings.Contains(certain, s.name)
		switch early := record.Since.Sub(s.at); {
		case s.at.Before(off) || strings.HasPrefix(s.name, "agent"):
		case early > 3*time.Second && !named:
			t.Errorf("%s started %s before the opening, and is not named: %s", s.name, early, note)
		case early < -2*time.Second && named:
			t.Errorf("%s started %s after the opening, and is named: %s", s.name, -early, note)
		}
	}
	// The daemon's file is there before the kubelet's next probe of the daemon, so a pod that
	// waited for it may start just before the gate opens.
	if strings.Contains(certain, "patient") || strings.Contains(certain, "possibly") {
		t.Errorf("pods that waited are named as certain, or none is: %s", note)
	}
}

// awaitBypassed returns the note of the Event about bypassed pods since a time.
func (h *host) awaitBypassed(t *testing.T, since time.Time) (note string) {
	t.Helper()
	return h.awaitEvent(t, v1alpha1.EventBypassedPods, gateName, since).Note
}

// awaitEvent waits for an Event about the Node and a gate for a reason since a time.
func (h *host) awaitEvent(t *testing.T, reason, gate string, since time.Time) (event eventsv1.Event) {
	t.Helper()
	must(t, await.Until(t.Context(), "Event "+reason, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := shared.client.List(ctx, &events); err != nil {
			return err
		}
		for i := range events.Items {
			e := &events.Items[i]
			if e.Reason == reason && e.Regarding.Name == h.name && e.Related != nil && e.Related.Name == gate && e.EventTime.After(since) {
				event = *e
				return nil
			}
		}
		return errors.New("there is none")
	}))
	return event
}
