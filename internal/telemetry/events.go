// SPDX-License-Identifier: Apache-2.0

package telemetry

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

// Events are written after the fact and have their own rate limits. Recording an Event does
// not block, so that Events do not delay a burst of openings. Events that exceed the limits
// are dropped and counted. client-go's recorder has no such limits, and does not report what
// it drops.
const (
	eventTimeout = 5 * time.Second

	// EventNoteMax is the maximum length of a note in the API.
	EventNoteMax = 1024
	// eventInstanceMax is the maximum length of the reporting instance in the API.
	eventInstanceMax = 128
)

// Urgent Events need attention and are queued, so that many can be recorded at once. Routine
// Events would double the writes of a burst of openings, so they are not queued: few of a
// burst are written, and all of those that occur one by one.
var (
	UrgentEvents  = eventBudget{Rate: 10, Burst: 50, Waiting: 1000}
	RoutineEvents = eventBudget{Rate: 1, Burst: 10}
)

// eventBudget is the rate limit of Events per second with its burst, and how many Events
// may be queued.
type eventBudget struct {
	Rate           rate.Limit
	Burst, Waiting int
}

// outbox contains the Events of one budget that have not been written.
type outbox struct {
	eventBudget
	events  chan *eventsv1.Event
	limiter *rate.Limiter
}

func newOutbox(b eventBudget) outbox {
	return outbox{b, make(chan *eventsv1.Event, max(b.Burst, b.Waiting)), rate.NewLimiter(b.Rate, b.Burst)}
}

// Recorder records Events about nodes and gates.
type Recorder struct {
	client   client.Client
	clock    clock.PassiveClock
	log      logr.Logger
	metrics  *Metrics
	instance string
	failed   atomic.Bool // whether the last write failed

	urgent, routine outbox

	mu   sync.Mutex
	last int64 // the last result of unique
}

// NewRecorder returns a Recorder. Run writes the Events.
func NewRecorder(c client.Client, clk clock.PassiveClock, log logr.Logger, m *Metrics) *Recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Recorder{
		client: c, clock: clk, log: log, metrics: m, instance: gate.Clip("nodegate-"+host, eventInstanceMax),
		urgent: newOutbox(UrgentEvents), routine: newOutbox(RoutineEvents),
	}
}

// Warning records a problem of a node. It does not block. related is the gate that is
// concerned, or nil.
func (r *Recorder) Warning(n *gate.Node, related *corev1.ObjectReference, reason, action, note string) {
	e := r.event(nodeReference(n), reason, action, note)
	e.Type, e.Related = corev1.EventTypeWarning, related
	r.record(r.urgent, e)
}

// Normal records a normal transition of a node. It does not block. related is the gate
// that is concerned, or nil.
func (r *Recorder) Normal(n *gate.Node, related *corev1.ObjectReference, reason, action, note string) {
	e := r.event(nodeReference(n), reason, action, note)
	e.Related = related
	r.record(r.routine, e)
}

// Gate records a problem of a gate as a whole, or the end of a problem. It does not
// block.
func (r *Recorder) Gate(ng *v1alpha1.NodeGate, kind, reason, note string) {
	e := r.event(*GateReference(ng), reason, v1alpha1.EventActionSetCondition, note)
	e.Type = kind
	r.record(r.urgent, e)
}

func nodeReference(n *gate.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

// GateReference returns the reference to a gate for Events about other objects. It
// returns nil for a gate that is unlisted or not an object of the API server.
func GateReference(ng *v1alpha1.NodeGate) *corev1.ObjectReference {
	if ng == nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGate", Name: ng.Name, UID: ng.UID}
}

// event returns a normal Event about an object.
func (r *Recorder) event(regarding corev1.ObjectReference, reason, action, note string) *eventsv1.Event {
	now := r.clock.Now()
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			// Events about objects without a namespace are in this namespace.
			Namespace: metav1.NamespaceDefault, Name: eventname.GenerateEventName(regarding.Name, r.unique(now)),
		},
		EventTime: metav1.NewMicroTime(now),
		Type:      corev1.EventTypeNormal, Reason: reason, Action: action, Note: gate.Clip(note, EventNoteMax),
		ReportingController: v1alpha1.EventReporter, ReportingInstance: r.instance,
		Regarding: regarding,
	}
}

// unique returns the time, increased if it has been returned before, because clocks may
// be coarse.
func (r *Recorder) unique(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, now.UnixNano())
	return r.last
}

func (r *Recorder) record(o outbox, e *eventsv1.Event) {
	if o.Waiting == 0 && !o.limiter.AllowN(r.clock.Now(), 1) {
		r.metrics.event(EventDropped)
		return
	}
	select {
	case o.events <- e:
	default:
		r.metrics.event(EventDropped)
	}
}

// Run writes recorded Events until the context ends. Queued Events are then lost.
func (r *Recorder) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, o := range []outbox{r.urgent, r.routine} {
		running.Go(func() { r.drain(ctx, o) })
	}
	running.Wait()
}

// drain writes the Events of one outbox.
func (r *Recorder) drain(ctx context.Context, o outbox) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-o.events:
			if o.Waiting > 0 && o.limiter.Wait(ctx) != nil {
				return
			}
			r.write(ctx, e)
		}
	}
}

// write writes an Event once. It does not retry, because that might create a second
// Event. It logs the first of consecutive failures, unless the process is shutting down.
func (r *Recorder) write(ctx context.Context, e *eventsv1.Event) {
	within, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	err := r.client.Create(within, e)
	if err == nil {
		r.metrics.event(eventWritten)
	} else {
		r.metrics.event(EventFailed)
	}
	if before := r.failed.Swap(err != nil); err != nil && !before && ctx.Err() == nil {
		r.log.Error(err, "cannot write events")
	}
}
