// SPDX-License-Identifier: Apache-2.0

package signal

import (
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// resource holds when the node's allocatable contains enough of a resource. It cannot
// determine the boot in which that was written. In practice, a kubelet that starts
// reports 0 for the resources of device plugins until they have registered again, and
// reports that together with the new boot ID.
type resource struct {
	levelSignal
	name    string
	atLeast apiresource.Quantity
}

func newResource(spec *v1alpha1.ResourceSignal) gate.Signal {
	s := resource{name: spec.Name, atLeast: apiresource.MustParse("1")}
	if spec.AtLeast != nil {
		s.atLeast = spec.AtLeast.DeepCopy()
	}
	return s
}

// Read implements gate.Signal.
func (s resource) Read(in gate.Input) gate.Reading {
	have, found := in.Node.Allocatable[s.name]
	if !found {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: "resource " + s.name}
	}
	subject := "resource " + s.name + "=" + have.String()
	if have.Cmp(s.atLeast) < 0 {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingInsufficient, Subject: subject}
	}
	return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: subject}
}

// Needs implements gate.Signal.
func (s resource) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Resources: []string{s.name}}
}
