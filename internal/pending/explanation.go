// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/report"
)

// Explanation is the output of 'kubectl gate why' about a pod with -o json and -o yaml. Fields
// may be added, but are neither renamed nor changed in meaning.
type Explanation struct {
	// Object is the pod, or the object that creates it, in the form KIND NAMESPACE/NAME.
	Object string `json:"object"`
	// Time is the time of the decisions.
	Time time.Time `json:"time"`
	// Node is the node to which the pod is bound. Then no other field is set except Rejection:
	// gates have no influence on where the pod runs any more.
	Node string `json:"node,omitempty"`
	// Rejection is why Node's kubelet rejected the pod. Nil if it did not, or for a reason that
	// has nothing to do with gates.
	Rejection *Rejection `json:"rejection,omitempty"`
	// Rejected is the reason why the API server rejects the pods that the object creates. Then no
	// node is checked: gates are not the cause.
	Rejected string `json:"rejected,omitempty"`
	// SchedulingGates are the pod's scheduling gates. As long as it has any, the scheduler does
	// not consider it.
	SchedulingGates []string `json:"schedulingGates,omitempty"`
	// Nodes is the number of nodes. Gates keep the pod off KeptOff of them; WouldFit of these
	// would fit it if the gates were open.
	Nodes    int `json:"nodes"`
	KeptOff  int `json:"keptOff"`
	WouldFit int `json:"wouldFit"`
	// Fit are the names of nodes that neither gates nor anything else that is checked keeps the
	// pod off.
	Fit []string `json:"fit,omitempty"`
	// Gates are the gates that keep the pod off nodes, those with most nodes first.
	Gates []Gate `json:"gates"`
	// Others are reasons why nodes do not fit the pod even if all gates are open.
	Others []Other `json:"others"`
	// Temporary are reasons that are expected to end while nodes are set up, such as devices that
	// have not registered. Nodes with only such reasons count in WouldFit.
	Temporary []Other `json:"temporary,omitempty"`
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// Rejection is a kubelet's decision not to run a pod, which then never starts.
type Rejection struct {
	// Reason and Message are the kubelet's.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Controller is the pod's controller, in the form KIND NAME. Nothing replaces a pod without
	// one.
	Controller string `json:"controller,omitempty"`
}

// Gate is a gate that keeps the pod off nodes.
type Gate struct {
	// Gate is the name of the gate.
	Gate  string `json:"gate"`
	Taint string `json:"taint"`
	// Nodes are the nodes that would fit the pod if their gates were open, those first on which
	// the gate has been closed for longest.
	Nodes []Held `json:"nodes"`
	// Others is the number of other nodes on which the gate is closed.
	Others int `json:"others,omitempty"`
	// WaitsFor contains what the gate waits for on Nodes, most frequent first.
	WaitsFor []Wait `json:"waitsFor"`
	// Usually is the time, in seconds, from the creation of nodes until the gate opened. Nil if
	// that is unknown.
	Usually *report.Spread `json:"usually,omitempty"`
}

// Held is a node on which a gate is closed.
type Held struct {
	Node string `json:"node"`
	// Since is when the gate closed.
	Since time.Time `json:"since,omitzero"`
}

// Wait is what a gate waits for on one or more nodes.
type Wait struct {
	// Signal is the name of the signal. Empty if the gate does not wait for a signal.
	Signal string                 `json:"signal,omitempty"`
	Reason v1alpha1.ReadingReason `json:"reason,omitempty"`
	// Message is a human-readable explanation for the first of the nodes.
	Message string `json:"message"`
	// Nodes is the number of nodes.
	Nodes int `json:"nodes"`
}

// Other is a reason, apart from gates, why nodes do not fit the pod.
type Other struct {
	Message string `json:"message"`
	// Nodes is the number of nodes.
	Nodes int `json:"nodes"`
}
