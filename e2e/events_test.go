// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// eventOf waits for the one Event about a node or gate for a reason.
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
	registry := prometheus.NewRegistry()
	e.runController(func(p *controller.Process) { p.Registerer = registry })
	ng := newGate("agent", keyA, byLabel("fit"))
	ng.Spec.ReclosePolicy, ng.Spec.Timing.CloseAfterSeconds = v1alpha1.RecloseOnRegression, ptr.To[int32](0)
	e.declare(ng)
	k := e.registered("told")[0]
	k.becomes("agent", isClosed, keyA)
	k.label("fit")
	k.becomes("agent", isOpen, keyA)
	opened := e.eventOf(k.node(), v1alpha1.EventGateOpened)
	if opened.Type != corev1.EventTypeNormal || opened.Action != v1alpha1.EventActionOpen || !strings.HasPrefix(opened.Note, "gate opened: agent after ") ||
		opened.Regarding.UID != k.node().UID || opened.Related == nil || opened.Related.UID != ng.UID {
		t.Errorf("the Event is %+v", opened)
	}
	k.patch(`{"metadata":{"labels":{"fit":null}}}`)
	k.becomes("agent", isClosed, keyA)
	closed := e.eventOf(k.node(), v1alpha1.EventGateClosed)
	if want := "gate closed: agent (Regression: signal signal: the node has no label fit)"; closed.Note != want || closed.ReportingController != v1alpha1.EventReporter {
		t.Errorf("the Event is %+v, want it to say %s", closed, want)
	}
	e.settled()
	k.wrote(2)
	n := 0
	for _, event := range e.audit() {
		if event.ObjectRef.Resource == "events" && event.User.Username == installationUser && strings.HasPrefix(event.ObjectRef.Name, "told.") {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d requests to write Events about the node, want one for each of its writes", n)
	}
	e.shows(registry, "nodegate_signal_wait_seconds", 1, "agent", "signal")

	refused := newGate("refused", keyA, byLabel("fit"))
	refused.Spec.Taint.Value = "other"
	e.must(e.admin.Create(t.Context(), refused))
	told := e.eventOf(refused, v1alpha1.EventNotAccepted)
	if told.Type != corev1.EventTypeWarning || told.Action != v1alpha1.EventActionSetCondition || !strings.HasPrefix(told.Note, v1alpha1.ReasonTaintConflict+": ") || told.Regarding.UID != refused.UID {
		t.Errorf("the Event is %+v", told)
	}
}
