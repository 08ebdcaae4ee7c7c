// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// UnknownGate is a named gate that neither exists nor has left anything on a node that was
// read. This is not an error: it may be gone because the release is run again.
type UnknownGate struct {
	// Name is the name.
	Name string
	// Known contains the names of the gates that exist or have left something, sorted.
	Known []string
	// onNamed is true if only named nodes were read.
	onNamed bool
}

// Warning returns a warning about the gate. It ends with the suggestion or, if that is empty,
// with the first of the known gates.
func (u UnknownGate) Warning(suggestion string) string {
	where := "no node has"
	if u.onNamed {
		where = "none of these nodes has"
	}
	switch {
	case suggestion != "":
	case len(u.Known) == 0:
		suggestion = "; no NodeGate exists"
	default:
		suggestion = "; the gates are " + listed(u.Known)
	}
	return gate.Printable(fmt.Sprintf("%s anything of this gate: gate %q not found%s", where, u.Name, suggestion))
}

// unknownGates returns the named gates that are unknown, given a function that returns those
// that exist.
func (r *releaser) unknownGates(existing func() (map[string]bool, error)) (unknown []UnknownGate) {
	names := slices.DeleteFunc(slices.Clone(r.Gates), func(name string) bool { return r.seen[name] })
	if len(names) == 0 {
		return nil
	}
	known, err := existing()
	if err != nil {
		return nil // without permission to list gates, there is no warning
	}
	maps.Copy(known, r.seen)
	for _, name := range names {
		if !known[name] {
			unknown = append(unknown, UnknownGate{Name: name, Known: slices.Sorted(maps.Keys(known)), onNamed: len(r.Nodes) > 0})
		}
	}
	return unknown
}

// existingGates returns the names of the NodeGates, and none if the API server does not
// serve them.
func existingGates(ctx context.Context, objects metadata.Interface) (map[string]bool, error) {
	gates := make(map[string]bool)
	list, err := objects.Resource(v1alpha1.Resource).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return gates, nil
	case err != nil:
		return nil, fmt.Errorf("listing NodeGates: %w", err)
	}
	for i := range list.Items {
		gates[list.Items[i].Name] = true
	}
	return gates, nil
}
