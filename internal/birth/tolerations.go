// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gateset"
)

// TolerationsError returns why the API server does not add the tolerations of the gate's
// taints to DaemonSets, as far as this depends on the parameter, or nil.
func (b *Reconciler) TolerationsError(gate string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.untolerated[gate]
}

// syncTolerations updates the parameter of the tolerations policy. It is not created before
// a gate needs it.
func (b *Reconciler) syncTolerations(ctx context.Context, set *gateset.Set) {
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
	failed := make(map[string]error)
	var have corev1.PodTemplate
	key := client.ObjectKey{Namespace: b.namespace, Name: v1alpha1.TolerationsParameter}
	err := b.client.Get(ctx, key, &have)
	before := admission.EntriesOfTolerations(&have)
	wanted := b.tolerations(set, before, failed)
	switch {
	case apierrors.IsNotFound(err) && len(wanted) == 0:
		err = nil
	case client.IgnoreNotFound(err) != nil:
		err = fmt.Errorf("reading PodTemplate %s: %w", key, err)
	default:
		err = b.writeTolerations(ctx, &have, wanted)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			err = b.writeTolerationsByGate(ctx, &have, before, wanted, failed)
		}
	}
	for _, name := range set.Names() {
		if err != nil && set.Tolerates(name) {
			failed[name] = err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(failed) > 0 && len(b.untolerated) == 0 && ctx.Err() == nil {
		name := slices.Min(slices.Collect(maps.Keys(failed)))
		b.log.Error(failed[name], "cannot write the parameter of the tolerations policy, retrying", "gate", name)
	}
	b.untolerated = failed
}

// tolerations returns the desired entries of the parameter: those of the gates that set
// tolerate, and existing ones of gates that cannot be read at present. Older gates come
// first; entries that do not fit are omitted.
func (b *Reconciler) tolerations(set *gateset.Set, before []admission.TolerationEntry, failed map[string]error) []admission.TolerationEntry {
	var all []admission.TolerationEntry
	for _, e := range before {
		if !set.Tolerates(e.Gate) && !set.NotTolerating(e.Gate) {
			all = append(all, e)
		}
	}
	for _, name := range byAge(set) {
		if !set.Tolerates(name) {
			continue
		}
		entries, err := admission.TolerationEntries(set.Declared[name])
		for i := range entries {
			err = cmp.Or(err, entries[i].Writable())
		}
		if err != nil {
			failed[name] = err
			continue
		}
		all = append(all, entries...)
	}
	fitting, tooMany := admission.FitTolerations(all)
	maps.Copy(failed, tooMany)
	return fitting
}

// byAge returns the names of the gates, oldest first.
func byAge(set *gateset.Set) []string {
	return slices.SortedFunc(slices.Values(set.Names()), func(a, z string) int {
		return cmp.Or(set.Declared[a].CreationTimestamp.Compare(set.Declared[z].CreationTimestamp.Time), cmp.Compare(a, z))
	})
}

// writeTolerationsByGate writes the entries of one gate after the other, so that an entry that
// the API server rejects does not affect other gates. It returns an error that does not
// concern a single gate.
func (b *Reconciler) writeTolerationsByGate(ctx context.Context, have *corev1.PodTemplate, before, wanted []admission.TolerationEntry, failed map[string]error) error {
	var accepted []admission.TolerationEntry
	var gates []string // in the order of wanted
	added := make(map[string][]admission.TolerationEntry)
	for _, e := range wanted {
		if slices.ContainsFunc(before, func(was admission.TolerationEntry) bool { return equality.Semantic.DeepEqual(was, e) }) {
			accepted = append(accepted, e)
			continue
		}
		if added[e.Gate] == nil {
			gates = append(gates, e.Gate)
		}
		added[e.Gate] = append(added[e.Gate], e)
	}
	if err := b.writeTolerations(ctx, have, accepted); err != nil { // removes the entries of deleted gates
		return err
	}
	for _, name := range gates {
		next := slices.Concat(accepted, added[name])
		if err := b.writeTolerations(ctx, have, next); err != nil {
			failed[name] = err
			continue
		}
		accepted = next
	}
	return nil
}

// writeTolerations writes the parameter with the given entries. have is its current state,
// which is updated.
func (b *Reconciler) writeTolerations(ctx context.Context, have *corev1.PodTemplate, entries []admission.TolerationEntry) error {
	return b.store(ctx, have, admission.TolerationsTemplate(b.namespace, entries), admission.CorrectedTolerations)
}
