// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
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

// Events tell people what has happened to a node, after it has. They have a
// budget of their own, and whoever records one does not wait for it: a burst of
// openings is not slowed by telling of it. What does not fit is dropped, and
// counted. client-go's recorder would neither keep to a rate nor say what it
// drops.
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

// recorder records Events about nodes.
type recorder struct {
	client   client.Client
	clock    clock.PassiveClock
	log      logr.Logger
	metrics  *Metrics
	limiter  *rate.Limiter
	queue    chan *eventsv1.Event
	instance string
	failed   bool // the last one could not be written
}

func newRecorder(c client.Client, clk clock.PassiveClock, log logr.Logger, m *Metrics) *recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &recorder{
		client: c, clock: clk, log: log, metrics: m, instance: clip("nodegate-"+host, eventInstanceMax),
		limiter: rate.NewLimiter(eventRate, eventBurst), queue: make(chan *eventsv1.Event, eventQueue),
	}
}

// warn records that something about a node wants attention. It does not block.
func (r *recorder) warn(n *gate.Node, reason, action, note string) {
	now := r.clock.Now()
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			// Nodes have no namespace, and their Events are in this one.
			Namespace: metav1.NamespaceDefault, Name: eventname.GenerateEventName(n.Name, now.UnixNano()),
		},
		EventTime: metav1.NewMicroTime(now),
		Type:      corev1.EventTypeWarning, Reason: reason, Action: action, Note: clip(note, eventNoteMax),
		ReportingController: v1alpha1.EventReporter, ReportingInstance: r.instance,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
	}
	select {
	case r.queue <- e:
	default:
		r.metrics.event("dropped")
	}
}

// run writes what is recorded until the context ends. What waits then is lost.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			if r.limiter.Wait(ctx) != nil {
				return
			}
			r.write(ctx, e)
		}
	}
}

// write tries once: an Event is not worth a second attempt, which might be a
// second Event. It logs the first failure of a row.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	err := r.client.Create(ctx, e)
	if err == nil {
		r.metrics.event("written")
	} else {
		r.metrics.event("failed")
		if !r.failed {
			r.log.Error(err, "cannot write events")
		}
	}
	r.failed = err != nil
}
