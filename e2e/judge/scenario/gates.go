// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// gateLabel is the label with the name of the gate that selects the node.
	gateLabel = "judge.example.com/gate"
	// fit is the node label or pod annotation for which gates wait.
	fit = "judge.example.com/fit"
	// openedAt is the annotation with the time at which a gate opened.
	openedAt = "judge.example.com/opened-at"
	// rackLabel is the label that names the group of a node.
	rackLabel = "judge.example.com/rack"
	// keyPrefix is the prefix of the gates' taint keys.
	keyPrefix = "judge.example.com/not-"
	namespace = "judge"
	// operator is the user that may write overrides.
	operator = "admin"
)

func key(gate string) string { return keyPrefix + gate }

// gates returns the gates that are created before the plays begin.
func gates() []*v1alpha1.NodeGate {
	return []*v1alpha1.NodeGate{
		gate("agent", open(v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: "agent"}})),
		gate("every", open(v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{
			Namespaces: []string{namespace}, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"required": "true"}}}})),
		gate("none", open(v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{
			Namespaces: []string{namespace}, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"required": "never"}}}})),
		gate("csi", open(v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi.example.com", Allocatable: true}})),
		gate("net", open(condition("Net"))),
		gate("marked", open(v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
			Namespace: namespace, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "marked"}},
			ReadyBy: v1alpha1.ReadyByAnnotation, ReadyAnnotation: fit}})),
		gate("check", open(v1alpha1.SignalSource{Completed: &v1alpha1.CompletedSignal{
			Namespace: namespace, Selector: v1alpha1.EqualitySelector{MatchLabels: map[string]string{"app": "check"}}}})),
		gate("devices", open(v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: driver, MinDevices: 1}})),
		gate("pools", open(v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: driver}})),
		gate("fit", open(label()), onRegression),
		gate("calm", open(condition("Net")), onRegression),
		gate("level", level),
		gate("hand", level, func(s *v1alpha1.NodeGateSpec) { s.Reopen = v1alpha1.ReopenManual }),
		gate("late", open(label()), func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(3)), Action: v1alpha1.DeadlineOpen}
		}),
		gate("later", open(label()), func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(3600)), Action: v1alpha1.DeadlineOpen}
		}),
		gate("missing", open(v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: "agent"}}), func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{PodMissingSeconds: new(int32(3)), Action: v1alpha1.DeadlineOpen}
		}),
		gate("stamped", open(label()), func(s *v1alpha1.NodeGateSpec) { s.OpenedAtAnnotation = openedAt }),
		gate("overdue", open(label()), func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(3)), Condition: v1alpha1.DeadlineConditionPublish}
			s.Budget.MaxReclosed = one()
		}),
		gate("hold", open(label()), func(s *v1alpha1.NodeGateSpec) { s.Timing.MinClosedSeconds = 4 }),
		gate("soak", open(label()), func(s *v1alpha1.NodeGateSpec) { s.Timing.OpenAfterSeconds = 4 }),
		gate("dry", open(label()), func(s *v1alpha1.NodeGateSpec) { s.Mode = v1alpha1.ModeDryRun }),
		gate("paused", open(label())),
		gate("doomed", open(label())),
		gate("overridden", open(label())),
		gate("undone", open(label())),
		gate("twin", open(label())),
		gate("other", open(condition("Net")), func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Key = key("twin")
			s.NodeSelector.MatchLabels = map[string]string{gateLabel: "twin"}
		}),
		gate("rack", open(label()), together),
		gate("slice", open(label()), together, func(s *v1alpha1.NodeGateSpec) { s.CloseTogether = v1alpha1.CloseTogetherWhenIncomplete }),
		gate("evicting", open(label()), func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Effect, s.Acknowledge = corev1.TaintEffectNoExecute, []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction}
		}),
		gate("partition", open(label())),
		gate("again", open(label()), func(s *v1alpha1.NodeGateSpec) {
			s.RecloseTaint = &v1alpha1.Taint{Key: key("again-ready"), Effect: corev1.TaintEffectNoSchedule}
		}),
		gate("once", open(label()), func(s *v1alpha1.NodeGateSpec) { s.ReclosePolicy = v1alpha1.RecloseNever }),
	}
}

// lateGates returns the gates that are created after the nodes that they select.
func lateGates() []*v1alpha1.NodeGate {
	existing := func(e v1alpha1.ExistingNodes) func(*v1alpha1.NodeGateSpec) {
		return func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = e; s.Budget.MaxReclosed = one() }
	}
	return []*v1alpha1.NodeGate{
		gate("old", open(label()), existing(v1alpha1.ExistingClose)),
		gate("idle", open(label()), existing(v1alpha1.ExistingCloseIfIdle)),
		gate("unsure", open(condition("Net")), existing(v1alpha1.ExistingClose)),
		gate("ignored", open(label())),
	}
}

func gate(name string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ng.Spec.NodeSelector.MatchLabels = map[string]string{gateLabel: name}
	ng.Spec.Taint = v1alpha1.Taint{Key: key(name), Effect: corev1.TaintEffectNoSchedule}
	for _, f := range change {
		f(&ng.Spec)
	}
	return ng
}

func one() *intstr.IntOrString { return new(intstr.FromInt32(1)) }

func open(s v1alpha1.SignalSource) func(*v1alpha1.NodeGateSpec) {
	return func(spec *v1alpha1.NodeGateSpec) {
		spec.OpenWhen = []v1alpha1.Signal{{Name: "signal", SignalSource: s}}
	}
}

func label() v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: fit}}
}

func condition(name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: name, Status: "True"}}
}

func onRegression(s *v1alpha1.NodeGateSpec) {
	s.ReclosePolicy = v1alpha1.RecloseOnRegression
	s.Timing.CloseAfterSeconds = new(int32)
	s.Budget.MaxReclosed = one()
}

// together makes a gate open on three nodes with the label rackLabel at once, and close on
// any number of them.
func together(s *v1alpha1.NodeGateSpec) {
	onRegression(s)
	s.OpenTogether = &v1alpha1.OpenTogether{LabelKey: rackLabel, AtLeast: intstr.FromInt32(3)}
	s.Budget.MaxReclosed = new(intstr.FromInt32(3))
}

func level(s *v1alpha1.NodeGateSpec) {
	s.CloseWhen = []v1alpha1.Signal{{Name: "signal", SignalSource: condition("BadDisk")}}
	s.Budget.MaxReclosed = one()
}

// allowedTaints returns the taints of all gates, in the form in which an administrator allows them.
func allowedTaints() []string {
	var all []string
	for _, ng := range append(gates(), lateGates()...) {
		for _, t := range ng.Spec.Taints() {
			taint := t.Key + ":" + string(t.Effect)
			if !slices.Contains(all, taint) {
				all = append(all, taint)
			}
		}
	}
	return all
}

// declare creates the gates and the DaemonSets for which they wait, and waits until the
// gates are in force.
func (e *environment) declare(ctx context.Context) error {
	objects := append(daemonSets(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	for _, ng := range gates() {
		objects = append(objects, ng)
	}
	for _, object := range objects {
		if err := e.admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	for _, ng := range gates() {
		if ng.Spec.Enforces() {
			if err := testbed.AwaitGate(ctx, e.applier, ng.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// daemonSets returns the DaemonSets for which gates wait. All tolerate everything,
// except one that tolerates only the taint of its gate.
func daemonSets() []client.Object {
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	gateOnly := corev1.Toleration{Key: key("every"), Operator: corev1.TolerationOpExists}
	elsewhere := daemonSet("elsewhere", true, everything)
	elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{"nowhere": "true"}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		daemonSet("agent", false, everything), daemonSet("another", false, everything),
		daemonSet("first", true, everything), daemonSet("second", true, gateOnly), elsewhere,
	}
}

func daemonSet(name string, required bool, tolerates corev1.Toleration) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"required": fmt.Sprint(required)}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "daemon", Image: "daemon"}}, Tolerations: []corev1.Toleration{tolerates}},
			},
		},
	}
}

// clear removes the objects that the scenario created.
func (e *environment) clear(ctx context.Context) error {
	for _, object := range []client.Object{&v1alpha1.NodeGate{}, &corev1.Node{}, &storagev1.CSINode{}, &resourcev1.ResourceSlice{}} {
		if err := e.admin.DeleteAllOf(ctx, object); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("removing the objects of an earlier run: %w", err)
		}
	}
	for _, object := range []client.Object{&appsv1.DaemonSet{}, &corev1.Pod{}} {
		if err := e.admin.DeleteAllOf(ctx, object, client.InNamespace(namespace), client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("removing the objects of an earlier run: %w", err)
		}
	}
	return nil
}
