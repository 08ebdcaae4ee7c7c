// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
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
// budgets of their own, and whoever records one does not wait for it: a burst of
// openings is not slowed by telling of it. What does not fit is dropped, and
// counted. client-go's recorder would neither keep to a rate nor say what it drops.
const (
	eventTimeout = 5 * time.Second

	// eventNoteMax is what the API lets a note have.
	eventNoteMax = 1024
	// eventInstanceMax is the same for the name of the process.
	eventInstanceMax = 128
)

// What wants attention may be many at once, and waits for its turn. Of what goes as it
// should, an Event is a second write for each, when the API server has the first ones
// of others to do: of many that open at once few are told of, at once or never, and
// where nodes come one by one each is.
var (
	urgentEvents  = eventBudget{rate: 10, burst: 50, waiting: 1000}
	routineEvents = eventBudget{rate: 1, burst: 10}
)

// eventBudget is how many Events are written a second, how many at once after a while
// without any, and how many more may wait for that.
type eventBudget struct {
	rate           rate.Limit
	burst, waiting int
}

// outbox is where Events of one budget are until they are written.
type outbox struct {
	eventBudget
	events  chan *eventsv1.Event
	limiter *rate.Limiter
}

func newOutbox(b eventBudget) outbox {
	return outbox{b, make(chan *eventsv1.Event, max(b.burst, b.waiting)), rate.NewLimiter(b.rate, b.burst)}
}

// recorder records Events about nodes and gates.
type recorder struct {
	client   client.Client
	clock    clock.PassiveClock
	log      logr.Logger
	metrics  *Metrics
	instance string
	failed   atomic.Bool // the last one could not be written

	urgent, routine outbox

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
		urgent: newOutbox(urgentEvents), routine: newOutbox(routineEvents),
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

func (r *recorder) record(o outbox, e *eventsv1.Event) {
	if o.waiting == 0 && !o.limiter.AllowN(r.clock.Now(), 1) {
		r.metrics.event(eventDropped)
		return
	}
	select {
	case o.events <- e:
	default:
		r.metrics.event(eventDropped)
	}
}

// run writes what is recorded until the context ends. What waits then is lost.
func (r *recorder) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, o := range []outbox{r.urgent, r.routine} {
		running.Go(func() { r.drain(ctx, o) })
	}
	running.Wait()
}

// drain writes the Events of one budget.
func (r *recorder) drain(ctx context.Context, o outbox) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-o.events:
			if o.waiting > 0 && o.limiter.Wait(ctx) != nil {
				return
			}
			r.write(ctx, e)
		}
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
	}
	if before := r.failed.Swap(err != nil); err != nil && !before && ctx.Err() == nil {
		r.log.Error(err, "cannot write events")
	}
}
