// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"maps"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is a kind of fault.
type Fault string

// Faults of requests. If the proxy responds with a status, the API server does not
// receive the request, unless After is set.
const (
	// None forwards the request.
	None Fault = ""
	// Conflict answers 409.
	Conflict Fault = "409 Conflict"
	// Gone answers 410, as if the resource version were too old.
	Gone Fault = "410 Gone"
	// Invalid answers 422, as if a test of a JSON Patch had failed.
	Invalid Fault = "422 Invalid"
	// TooManyRequests answers 429 with Retry-After: 1.
	TooManyRequests Fault = "429 TooManyRequests"
	// InternalError answers 500.
	InternalError Fault = "500 InternalError"
	// Unavailable answers 503.
	Unavailable Fault = "503 Unavailable"
	// Reset ends the connection or, with HTTP/2, its stream.
	Reset Fault = "reset"
	// Timeout does not respond for Wait, and then resets.
	Timeout Fault = "timeout"
	// Half ends the response in the middle.
	Half Fault = "half a response"
	// Late forwards the request after Wait.
	Late Fault = "late request"
	// Rewind serves a list from the state at Wait ago. It first rejects a streaming list,
	// like an API server without that feature, so that the client sends a plain list.
	Rewind Fault = "rewound list"
	// Call calls Do, and resets.
	Call Fault = "call"
)

// Faults of watch events.
const (
	// EventLost drops the event and all later ones, and ends the watch a moment later. The
	// client resumes where it lost the connection.
	EventLost Fault = "event lost with its connection"
	// EventDropped drops the event without an error. No network does this; only a later
	// event of the same object repairs it.
	EventDropped Fault = "event dropped without an error"
	// EventDoubled delivers the event twice.
	EventDoubled Fault = "event duplicated"
	// EventLate delivers the event after Wait. Later events overtake it.
	EventLate Fault = "event late"
	// EventSwapped delivers the next event before this one.
	EventSwapped Fault = "event swapped with the next"
	// EventError replaces the event by an ERROR event (410 Expired) and ends the watch.
	EventError Fault = "event replaced by 410 Expired"
)

// Freeze is counted once for each watch that was frozen.
const Freeze Fault = "watch frozen"

// Lagging is counted once for each watch that lags.
const Lagging Fault = "watch of a lagging server"

// RequestFault is what happens to a request.
type RequestFault struct {
	Fault Fault
	// After injects the fault after the API server has responded: the request is carried
	// out, but the client does not receive the response.
	After bool
	// Wait is how long Timeout and Late wait, and how far back Rewind goes.
	Wait time.Duration
	// Do is the function that Call calls.
	Do func()
}

// EventFault is what happens to an event.
type EventFault struct {
	Fault Fault
	// Wait is the delay of EventLate.
	Wait time.Duration
}

// Request is a request of a client.
type Request struct {
	// Verb is the request's verb as in audit logs: "list", "watch", "patch".
	Verb string
	// Resource is "nodes", or "nodes/status" for a subresource.
	Resource        string
	Namespace, Name string
}

// IsWrite reports whether the request changes an object.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Event is an event of a watch.
type Event struct {
	// Resource is the watched resource, such as "nodes".
	Resource string
	// Type is "ADDED", "MODIFIED", "DELETED".
	Type            string
	Namespace, Name string
	ResourceVersion string
}

// Plan decides which faults are injected. Its functions are called from many goroutines.
// A nil function injects nothing.
type Plan struct {
	// Request is called for every request.
	Request func(Request) RequestFault
	// Event is called for every event of a watch, except bookmarks, errors, and the initial
	// events of a streaming list.
	Event func(Event) EventFault
	// Lag is called once for every watch and list, and returns the delay of all its events
	// or the age of its state.
	Lag func(Request) time.Duration
}

// Counts counts faults.
type Counts struct {
	mu sync.Mutex
	n  map[Fault]int
}

// add counts a fault that has been injected.
func (c *Counts) add(f Fault) {
	if f == None {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[Fault]int)
	}
	c.n[f]++
}

// Injected returns how often each fault has been injected.
func (c *Counts) Injected() map[Fault]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// statuses are the responses of an API server, by fault.
var statuses = map[Fault]metav1.Status{
	Conflict:        status(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified"),
	Gone:            status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"),
	Invalid:         status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the server rejected our request due to an error in our request"),
	TooManyRequests: status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later"),
	InternalError:   status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "internal error"),
	Unavailable:     status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the server is currently unable to handle the request"),
}

func status(code int32, reason metav1.StatusReason, message string) metav1.Status {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message + " (injected)",
	}
	if code == http.StatusTooManyRequests {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return s
}
