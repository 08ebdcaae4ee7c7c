// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventname "k8s.io/client-go/tools/record/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Events tell people what has happened to a node or gate, after it has. They have
// a budget of their own, and whoever records one does not wait for it: a burst of
// openings is not slowed by telling of it. What does not fit is dropped, and
// counted; what wants attention goes first, and has a queue to itself. client-go's
// recorder would neither keep to a rate nor say what it drops.
const (
	eventQueue   = 1000
	eventRate    = 10 // a second
	eventBurst   = 50
	eventTimeout = 5 * time.Second

	// eventNoteMax is what the API lets a note have.
	eventNoteMax = 1024
	// eventInstanceMax is the same for the name of the process.
	eventInstanceMax = 128
)

// recorder records Events about nodes and gates.
type recorder struct {
	client   client.Client
	clock    clock.PassiveClock
	log      logr.Logger
	metrics  *Metrics
	limiter  *rate.Limiter
	instance string
	failed   bool // the last one could not be written

	// urgent are those that come before the routine ones.
	urgent, routine chan *eventsv1.Event

	mu   sync.Mutex
	last int64 // of which no two Events' names are made
}

func newRecorder(c client.Client, clk clock.PassiveClock, log logr.Logger, m *Metrics) *recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &recorder{
		client: c, clock: clk, log: log, metrics: m, instance: clip("nodegate-"+host, eventInstanceMax),
		limiter: rate.NewLimiter(eventRate, eventBurst), urgent: make(chan *eventsv1.Event, eventQueue), routine: make(chan *eventsv1.Event, eventQueue),
	}
}

// warn records that something about a node wants attention. It does not block.
// Related is the gate that it is about, or nil.
func (r *recorder) warn(n *gate.Node, related *corev1.ObjectReference, reason, action, note string) {
	e := r.event(nodeReference(n), reason, action, note)
	e.Type, e.Related = corev1.EventTypeWarning, related
	r.record(r.urgent, e)
}

// tell records, likewise, what has become of a node as it should.
func (r *recorder) tell(n *gate.Node, related *corev1.ObjectReference, reason, action, note string) {
	e := r.event(nodeReference(n), reason, action, note)
	e.Related = related
	r.record(r.routine, e)
}

// tellOfGate records, likewise, what has become of a gate as a whole: a warning, or
// that there is no more reason for one.
func (r *recorder) tellOfGate(ng *v1alpha1.NodeGate, kind, reason, note string) {
	e := r.event(*gateReference(ng), reason, v1alpha1.EventActionSetCondition, note)
	e.Type = kind
	r.record(r.urgent, e)
}

func nodeReference(n *gate.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

func gateReference(ng *v1alpha1.NodeGate) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGate", Name: ng.Name, UID: ng.UID}
}

// event is a normal one, about this object.
func (r *recorder) event(regarding corev1.ObjectReference, reason, action, note string) *eventsv1.Event {
	now := r.clock.Now()
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			// Nodes and gates have no namespace, and their Events are in this one.
			Namespace: metav1.NamespaceDefault, Name: eventname.GenerateEventName(regarding.Name, r.unique(now)),
		},
		EventTime: metav1.NewMicroTime(now),
		Type:      corev1.EventTypeNormal, Reason: reason, Action: action, Note: clip(note, eventNoteMax),
		ReportingController: v1alpha1.EventReporter, ReportingInstance: r.instance,
		Regarding: regarding,
	}
}

// unique is the time, unless it was given already: clocks may be coarse.
func (r *recorder) unique(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, now.UnixNano())
	return r.last
}

func (r *recorder) record(queue chan<- *eventsv1.Event, e *eventsv1.Event) {
	select {
	case queue <- e:
	default:
		r.metrics.event(eventDropped)
	}
}

// run writes what is recorded until the context ends. What waits then is lost.
func (r *recorder) run(ctx context.Context) {
	for {
		e := r.next(ctx)
		if e == nil || r.limiter.Wait(ctx) != nil {
			return
		}
		r.write(ctx, e)
	}
}

// next waits for an Event, and prefers urgent ones. It is nil when the context
// ends.
func (r *recorder) next(ctx context.Context) *eventsv1.Event {
	select {
	case e := <-r.urgent:
		return e
	default:
	}
	select {
	case <-ctx.Done():
		return nil
	case e := <-r.urgent:
		return e
	case e := <-r.routine:
		return e
	}
}

// write tries once: an Event is not worth a second attempt, which might be a
// second Event. It logs the first failure of a row, unless the process ends.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	within, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	err := r.client.Create(within, e)
	if err == nil {
		r.metrics.event(eventWritten)
	} else {
		r.metrics.event(eventFailed)
		if !r.failed && ctx.Err() == nil {
			r.log.Error(err, "cannot write events")
		}
	}
	r.failed = err != nil
}
