// SPDX-License-Identifier: Apache-2.0

// Package tolerate adds tolerations of gates' taints to the DaemonSets that the gates wait
// for, with the caller's credentials: what the tolerations policy does when a DaemonSet is
// created or updated, for DaemonSets that exist, and for clusters without the policy.
package tolerate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/release"
)

// Plan is a DaemonSet that does not tolerate a taint of a gate that waits for it.
type Plan struct {
	types.NamespacedName
	// Entries are those of all gates that wait for the DaemonSet.
	Entries []admission.TolerationEntry
	// Gates are the names of the gates whose taints it does not tolerate.
	Gates []string
}

// Waited returns the entries of the gates that are in force or in dry run, or of those with
// the given names.
func Waited(set *gateset.Set, names []string) ([]admission.TolerationEntry, error) {
	var all []admission.TolerationEntry
	for _, name := range set.Names() {
		ng := set.Declared[name]
		if ng.ReadError != "" || !set.Accepted(name) || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		entries, err := admission.TolerationEntries(ng)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

// WithoutDaemonSets returns the gates of Waited that wait for what a daemon provides, and name or
// select no DaemonSet: Waited has no entry for them.
func WithoutDaemonSets(set *gateset.Set, names []string) (all []GateWithoutDaemonSets) {
	for _, name := range set.Names() {
		ng := set.Declared[name]
		if ng.ReadError != "" || !set.Accepted(name) || ng.Spec.Follows() || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		g := GateWithoutDaemonSets{Gate: name, Signals: providedSignals(ng)}
		for _, t := range ng.Spec.Taints() {
			if t.Effect != corev1.TaintEffectPreferNoSchedule {
				g.Taints = append(g.Taints, gate.TaintText(t))
			}
		}
		if len(g.Signals) > 0 && len(g.Taints) > 0 {
			all = append(all, g)
		}
	}
	return all
}

// providedSignals returns the kinds of a gate's signals for what a daemon provides. It returns
// nil if another signal names or selects DaemonSets: these are usually the same ones.
func providedSignals(ng *v1alpha1.NodeGate) (kinds []string) {
	for _, s := range v1alpha1.Sources(ng.Spec.OpenWhen) {
		switch {
		case s.DaemonSet != nil || s.DaemonSets != nil:
			return nil
		case s.Pods != nil:
			kinds = append(kinds, "pods")
		case s.CSIDriver != nil:
			kinds = append(kinds, "csiDriver")
		case s.Resource != nil:
			kinds = append(kinds, "resource")
		case s.ResourceSlices != nil:
			kinds = append(kinds, "resourceSlices")
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Namespaces returns the namespaces of the DaemonSets that entries select, sorted.
func Namespaces(entries []admission.TolerationEntry) []string {
	var all []string
	for i := range entries {
		all = append(all, entries[i].Namespaces...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Of returns the DaemonSets that lack a toleration, in the order of sets. waited returns
// the names of all DaemonSets that an entry selects. DaemonSets that are being deleted do not
// count: their pods are not replaced.
func Of(entries []admission.TolerationEntry, sets *gate.DaemonSets) (plans []Plan, waited map[types.NamespacedName]bool) {
	waited = make(map[types.NamespacedName]bool)
	for i := range sets.Items {
		ds := &sets.Items[i]
		p := Plan{NamespacedName: types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}}
		for _, e := range entries {
			if ds.Deleting || !e.Selects(ds.Namespace, ds.Name, ds.Labels) {
				continue
			}
			waited[p.NamespacedName] = true
			p.Entries = append(p.Entries, e)
			if !e.Tolerated(ds.Tolerations) && !slices.Contains(p.Gates, e.Gate) {
				p.Gates = append(p.Gates, e.Gate)
			}
		}
		if len(p.Gates) > 0 {
			plans = append(plans, p)
		}
	}
	return plans, waited
}

// reader reads DaemonSets. read.Reader implements it.
type reader interface {
	DaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error)
}

// writer writes tolerations. write.DaemonSetWriter implements it.
type writer interface {
	Apply(ctx context.Context, ds *appsv1.DaemonSet, tolerations []corev1.Toleration, force bool, dryRun []string) (*appsv1.DaemonSet, error)
}

// Tolerator adds tolerations to DaemonSets.
type Tolerator struct {
	Reader reader
	Writer writer
	DryRun release.DryRun
	// Force takes over the list of tolerations if another field manager owns it.
	Force bool
}

// maxAttempts is how often a DaemonSet is written if another writer changes it meanwhile.
// The DaemonSet controller often writes its status.
const maxAttempts = 8

// Run adds the tolerations of the plans, one DaemonSet after the other. Errors of single
// DaemonSets are in the report.
func (t *Tolerator) Run(ctx context.Context, plans []Plan) *Report {
	r := &Report{DryRun: t.DryRun, DaemonSets: []Result{}}
	for i := range plans {
		out := Result{Namespace: plans[i].Namespace, Name: plans[i].Name, Gates: plans[i].Gates}
		err := t.one(ctx, &plans[i], &out)
		var owned *write.OwnedError
		switch {
		case errors.As(err, &owned):
			out.Owners, out.Error = owned.Managers, gate.Printable(owned.Error())
		case err != nil:
			out.Error = gate.Printable(err.Error())
		}
		r.DaemonSets = append(r.DaemonSets, out)
	}
	return r
}

// one adds the tolerations to one DaemonSet. It reads the DaemonSet again and retries on a
// conflict.
func (t *Tolerator) one(ctx context.Context, p *Plan, out *Result) error {
	var uid types.UID
	for attempt := 1; ; attempt++ {
		ds, err := t.Reader.DaemonSet(ctx, p.Namespace, p.Name)
		if err != nil {
			return err
		}
		if uid = cmp.Or(uid, ds.UID); ds.UID != uid {
			return errors.New("the DaemonSet was deleted and created again")
		}
		if ds.DeletionTimestamp != nil {
			return errors.New("the DaemonSet is being deleted")
		}
		wanted, added := admission.Tolerate(ds.Spec.Template.Spec.Tolerations, selecting(p.Entries, ds))
		out.Added, out.Rollout = texts(added), rollout(ds)
		if len(added) == 0 {
			out.Rollout = ""
			return nil // another writer has added them
		}
		if t.DryRun == release.DryRunClient {
			return nil
		}
		if err = t.write(ctx, ds, p, wanted, out); !errors.Is(err, write.ErrDaemonSetChanged) || attempt == maxAttempts {
			return err
		}
	}
}

// selecting returns the entries that still select a DaemonSet.
func selecting(entries []admission.TolerationEntry, ds *appsv1.DaemonSet) []admission.TolerationEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e admission.TolerationEntry) bool {
		return !e.Selects(ds.Namespace, ds.Name, ds.Labels)
	})
}

// write writes the tolerations to a DaemonSet. If the tolerations policy adds them to an
// update that changes nothing, that update is sent: no field manager then owns more than
// before. Otherwise, the whole list is applied, because it is atomic.
//
// To apply nothing removes what this command has applied before. The policy is therefore
// not used for a list that the command owns.
func (t *Tolerator) write(ctx context.Context, ds *appsv1.DaemonSet, p *Plan, wanted []corev1.Toleration, out *Result) error {
	tried, err := t.Writer.Apply(ctx, ds, nil, false, []string{metav1.DryRunAll})
	if err != nil {
		return err
	}
	if keepsTolerations(ds, tried) && p.missing(tried) == "" {
		out.By = ByPolicy
		if t.DryRun == release.DryRunServer {
			return nil
		}
		result, err := t.Writer.Apply(ctx, ds, nil, false, nil)
		if err == nil && p.missing(result) != "" { // another API server may not know the policy's parameter yet
			err = fmt.Errorf("the policy has not added %s: %w", p.missing(result), write.ErrDaemonSetChanged)
		}
		return err
	}
	out.By = ByApply
	for _, dryRun := range t.applies() {
		result, err := t.Writer.Apply(ctx, ds, wanted, t.Force, dryRun)
		if err != nil {
			return err
		}
		if missing := p.missing(result); missing != "" {
			return fmt.Errorf("an admission policy or webhook for DaemonSets removes %s", missing)
		}
	}
	return nil
}

// applies returns the values of DryRun of the requests that apply a list. The first is a dry run: if
// an admission policy or webhook removes a toleration, nothing is changed, and pods are not replaced.
func (t *Tolerator) applies() [][]string {
	tries := [][]string{{metav1.DryRunAll}}
	if t.DryRun == release.DryRunServer {
		return tries
	}
	return append(tries, nil)
}

// keepsTolerations reports whether a DaemonSet still has all of its tolerations after a
// write, in the same order and before any others.
func keepsTolerations(before, after *appsv1.DaemonSet) bool {
	had, has := before.Spec.Template.Spec.Tolerations, after.Spec.Template.Spec.Tolerations
	return len(has) >= len(had) && equality.Semantic.DeepEqual(had, has[:len(had)])
}

// missing returns the first taint of the plan that a DaemonSet does not tolerate, or "".
func (p *Plan) missing(ds *appsv1.DaemonSet) string {
	_, missing := admission.Tolerate(ds.Spec.Template.Spec.Tolerations, selecting(p.Entries, ds))
	if len(missing) == 0 {
		return ""
	}
	return texts(missing)[0]
}

// rollout returns the update strategy of a DaemonSet.
func rollout(ds *appsv1.DaemonSet) string {
	return string(cmp.Or(ds.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType))
}
