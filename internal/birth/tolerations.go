// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
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
func (b *Reconciler) syncTolerations(running context.Context, set *gateset.Set, clk clock.PassiveClock) {
	ctx, cancel := context.WithTimeout(running, birthTimeout)
	defer cancel()
	failed := make(map[string]error)
	p := parameter[admission.TolerationEntry]{client: b.client, clock: clk, rejected: &b.rejectedTolerations}
	p.render = func(entries []admission.TolerationEntry) *corev1.PodTemplate {
		return admission.TolerationsTemplate(b.namespace, entries)
	}
	key := client.ObjectKey{Namespace: b.namespace, Name: v1alpha1.TolerationsParameter}
	err := b.client.Get(ctx, key, &p.have)
	wanted := b.wantedTolerations(ctx, set, admission.EntriesOfTolerations(&p.have), failed)
	switch {
	case apierrors.IsNotFound(err) && len(wanted) == 0:
		err = nil
	case client.IgnoreNotFound(err) != nil:
		err = fmt.Errorf("reading PodTemplate %s: %w", key, err)
	default:
		err = p.store(running, wanted, func(e admission.TolerationEntry, err error) { failed[e.Gate] = err })
	}
	for _, name := range set.Names() {
		if err != nil && set.Tolerates(name) {
			failed[name] = err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(failed) > 0 && len(b.untolerated) == 0 && running.Err() == nil {
		name := slices.Min(slices.Collect(maps.Keys(failed)))
		b.log.Error(failed[name], "cannot write the parameter of the tolerations policy, retrying", "gate", name)
	}
	b.untolerated = failed
}

// tolerations returns the desired entries of the parameter: those of the gates that set
// tolerate, and existing ones of gates that cannot be read at present, or in keep. Older gates
// come first; entries that do not fit are omitted.
func (b *Reconciler) tolerations(set *gateset.Set, before []admission.TolerationEntry, keep, failed map[string]error) []admission.TolerationEntry {
	var all []admission.TolerationEntry
	for _, e := range before {
		if keep[e.Gate] != nil || !set.Tolerates(e.Gate) && !set.NotTolerating(e.Gate) {
			all = append(all, e)
		}
	}
	for _, name := range byAge(set) {
		if keep[name] != nil || !set.Tolerates(name) {
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
