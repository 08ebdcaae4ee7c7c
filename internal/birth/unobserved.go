// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/clients"
)

// A watch of NodeGates may be late, and a parameter may have been written by another leader, whose
// watch was not. Its entry of a gate that has just been created or enabled must not be removed, or
// new Nodes would be created without the taint of a gate whose status says that it closes them.
// Therefore an entry is only changed or removed if the API server has no state of its gate that has
// not been observed. An entry may be added without this: at worst, nodes are closed for a gate that
// has just been deleted or disabled, and opened when that is observed.

// errUnobserved is why an entry of a gate remains.
var errUnobserved = errors.New("the gate has changed, and the change has not been observed yet")

// wanted returns the desired entries of the birth parameter, and an error if others remain.
func (b *Reconciler) wanted(ctx context.Context, set *gateset.Set, before map[string]admission.Entry, failed map[string]error) ([]admission.Entry, error) {
	entries := b.entries(set, before, nil, failed)
	gateOf := func(e admission.Entry) string { return e.Name }
	late := b.unobserved(ctx, set, changing(slices.Collect(maps.Values(before)), entries, gateOf))
	if len(late) == 0 {
		return entries, nil
	}
	maps.Copy(failed, late)
	return b.entries(set, before, late, failed), late[slices.Min(slices.Collect(maps.Keys(late)))]
}

// wantedTolerations returns the desired entries of the parameter of the tolerations policy.
func (b *Reconciler) wantedTolerations(ctx context.Context, set *gateset.Set, before []admission.TolerationEntry, failed map[string]error) []admission.TolerationEntry {
	entries := b.tolerations(set, before, nil, failed)
	gateOf := func(e admission.TolerationEntry) string { return e.Gate }
	late := b.unobserved(ctx, set, changing(before, entries, gateOf))
	if len(late) == 0 {
		return entries
	}
	maps.Copy(failed, late)
	return b.tolerations(set, before, late, failed)
}

// unobserved returns, for those of the gates whose entries must remain, why.
func (b *Reconciler) unobserved(ctx context.Context, set *gateset.Set, gates []string) map[string]error {
	late := make(map[string]error)
	if set.Source != v1alpha1.SourceCRD {
		return late
	}
	for _, name := range gates {
		if err := b.checkObserved(ctx, name, set.Declared[name]); err != nil {
			late[name] = err
		}
	}
	return late
}

// checkObserved compares a gate with its state in the API server, which is read consistently. The
// observed gate is nil if there is none.
func (b *Reconciler) checkObserved(ctx context.Context, name string, observed *v1alpha1.NodeGate) error {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
	if err := b.client.Get(ctx, client.ObjectKey{Name: name}, now); err != nil {
		if clients.DoesNotExist(err) {
			return nil // the entry is not needed, also if the deletion has not been observed yet
		}
		return fmt.Errorf("reading gate %s: %w", name, err)
	}
	if observed == nil || now.UID != observed.UID || now.Generation != observed.Generation {
		return errUnobserved
	}
	return nil
}

// changing returns the names of the gates that have entries before and would have other ones
// afterwards.
func changing[E any](before, after []E, gateOf func(E) string) (gates []string) {
	was, is := byGate(before, gateOf), byGate(after, gateOf)
	for name, entries := range was {
		if !equality.Semantic.DeepEqual(entries, is[name]) {
			gates = append(gates, name)
		}
	}
	return gates
}

func byGate[E any](entries []E, gateOf func(E) string) map[string][]E {
	out := make(map[string][]E)
	for _, e := range entries {
		out[gateOf(e)] = append(out[gateOf(e)], e)
	}
	return out
}
