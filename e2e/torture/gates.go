// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	// prefix is the prefix of the campaign's keys, ours the prefix of gates' taint keys,
	// and foreign the prefix of foreign keys.
	prefix  = "torture.example.com/"
	ours    = prefix + "not-"
	foreign = "foreign.example.com/"
	// pool is the label by which edited gates select nodes, and fit the label for which
	// they wait.
	pool = prefix + "pool"
	fit  = prefix + "fit"
)

// gates returns the gates that exist at the beginning. The first three select every node
// and are never edited; the others are deleted, re-created and edited.
func gates() []*v1alpha1.NodeGate {
	inPool := func(name string) map[string]string { return map[string]string{pool: name} }
	label := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: fit}}
	condition := func(name string) v1alpha1.SignalSource {
		return v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: name, Status: "True"}}
	}
	return []*v1alpha1.NodeGate{
		newGate("agent", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = signals(v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: daemon}})
		}),
		newGate("net", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen, s.ReclosePolicy = signals(condition("Net")), v1alpha1.RecloseOnRegression
			s.Timing.CloseAfterSeconds = new(int32)
		}),
		newGate("disk", func(s *v1alpha1.NodeGateSpec) { s.CloseWhen = signals(condition("BadDisk")) }),
		newGate("adopt", func(s *v1alpha1.NodeGateSpec) {
			s.NodeSelector.MatchLabels, s.OpenWhen, s.ExistingNodes = inPool("a"), signals(label), v1alpha1.ExistingAdopt
		}),
		newGate("close", func(s *v1alpha1.NodeGateSpec) {
			s.NodeSelector.MatchLabels, s.OpenWhen, s.ExistingNodes = inPool("b"), signals(label), v1alpha1.ExistingClose
		}),
		newGate("twin", func(s *v1alpha1.NodeGateSpec) { // with the taint of gate "close"
			s.NodeSelector.MatchLabels, s.OpenWhen, s.Taint.Key = inPool("b"), signals(condition("Net")), ours+"close"
		}),
	}
}

// unchanged is the number of gates that are never edited.
const unchanged = 3

func newGate(name string, change func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ng.Spec.Taint = v1alpha1.Taint{Key: ours + name, Effect: corev1.TaintEffectNoSchedule}
	change(&ng.Spec)
	return ng
}

func signals(s v1alpha1.SignalSource) []v1alpha1.Signal {
	return []v1alpha1.Signal{{Name: "signal", SignalSource: s}}
}

// taintKeys returns the keys of the taints that nodegate may change.
func taintKeys() []string {
	var keys []string
	for _, ng := range gates() {
		if !slices.Contains(keys, ng.Spec.Taint.Key) {
			keys = append(keys, ng.Spec.Taint.Key)
		}
	}
	return keys
}

// changeGate deletes, creates, pauses or edits one of the gates that may change.
func (f *fleet) changeGate(ctx context.Context, rng *rand.Rand) error {
	ng := gates()[unchanged+rng.IntN(len(gates())-unchanged)]
	choice := rng.IntN(6)
	if choice == 0 {
		return client.IgnoreNotFound(f.admin.Delete(ctx, ng))
	}
	return f.putGate(ctx, ng, func(s *v1alpha1.NodeGateSpec) {
		switch choice {
		case 1:
			s.Mode = v1alpha1.ModePaused
		case 2:
			s.Mode = v1alpha1.ModeDryRun
		case 3:
			s.NodeSelector.MatchLabels = map[string]string{pool: []string{"a", "b"}[rng.IntN(2)]}
		case 4:
			s.ReclosePolicy = v1alpha1.RecloseOnRegression
			s.Timing.CloseAfterSeconds = new(int32)
		}
	})
}

// putGate creates or updates the gate with its original spec and a change. It tries again if the gate is
// written, created or deleted meanwhile: nodegate writes its status, and churn changes gates, too.
func (f *fleet) putGate(ctx context.Context, ng *v1alpha1.NodeGate, change func(*v1alpha1.NodeGateSpec)) error {
	change(&ng.Spec)
	meanwhile := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	return retry.OnError(retry.DefaultBackoff, meanwhile, func() error {
		have := &v1alpha1.NodeGate{}
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(ng), have)
		if apierrors.IsNotFound(err) {
			return f.admin.Create(ctx, ng.DeepCopy())
		}
		if err != nil {
			return err
		}
		have.Spec = ng.Spec
		return f.admin.Update(ctx, have)
	})
}
