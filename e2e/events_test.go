// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// eventOf waits until exactly one Event about a node or gate has a reason, and returns it.
func (e *env) eventOf(about client.Object, reason string) eventsv1.Event {
	e.Helper()
	var found []eventsv1.Event
	e.eventually(fmt.Sprintf("an Event %s about %s", reason, about.GetName()), func() error {
		var list eventsv1.EventList
		e.must(e.admin.List(e.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		found = slices.DeleteFunc(list.Items, func(event eventsv1.Event) bool {
			return event.Regarding.UID != about.GetUID() || event.Reason != reason
		})
		if len(found) != 1 {
			return fmt.Errorf("%d Events", len(found))
		}
		return nil
	})
	return found[0]
}

// With its permissions, the controller creates Events for openings and closings on a node,
// and for the gate: one for each write of the node, and none if nothing changes.
func TestEventsOfTransitions(t *testing.T) {
	e := newEnv(t)
	metrics, _ := e.startWithMetrics()
	ng := e.declare(onRegression(newGate("agent", keyA, byLabel("fit"))))
	k := e.registered("observed")[0]
	k.becomes("agent", isClosed, keyA)
	k.label("fit")
	k.becomes("agent", isOpen, keyA)
	opened := e.eventOf(k.node(), v1alpha1.EventGateOpened)
	if opened.Type != corev1.EventTypeNormal || opened.Action != v1alpha1.EventActionOpen || !strings.HasPrefix(opened.Note, "gate opened: agent after ") ||
		opened.Regarding.UID != k.node().UID || opened.Related == nil || opened.Related.UID != ng.UID {
		t.Errorf("the Event is %+v", opened)
	}
	k.unlabel("fit")
	k.becomes("agent", isClosed, keyA)
	closed := e.eventOf(k.node(), v1alpha1.EventGateClosed)
	if want := "gate closed: agent (Regression: signal signal: the node has no label fit)"; closed.Note != want || closed.ReportingController != v1alpha1.EventReporter {
		t.Errorf("the Event is %+v, want note %q", closed, want)
	}
	e.settled()
	k.wrote(2)
	n := 0
	for _, event := range e.loggedSoFar() {
		if event.ObjectRef.Resource == "events" && event.User.Username == installationUser && strings.HasPrefix(event.ObjectRef.Name, "observed.") {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d requests write Events about the node, want one for each of its writes", n)
	}
	e.shows(metrics, "nodegate_signal_wait_seconds", 1, "agent", "signal")

	conflicting := newGate("conflicting", keyA, byLabel("fit"))
	conflicting.Spec.Taint.Value = "other"
	e.must(e.admin.Create(t.Context(), conflicting))
	event := e.eventOf(conflicting, v1alpha1.EventNotAccepted)
	if event.Type != corev1.EventTypeWarning || event.Action != v1alpha1.EventActionSetCondition ||
		!strings.HasPrefix(event.Note, v1alpha1.ReasonTaintConflict+": ") || event.Regarding.UID != conflicting.UID {
		t.Errorf("the Event is %+v", event)
	}
}
