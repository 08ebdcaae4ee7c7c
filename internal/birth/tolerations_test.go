// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// tolerating returns a gate that waits for DaemonSet ns/<name> and sets tolerate.
func tolerating(name string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	return controllertest.Gate(name, append([]func(*v1alpha1.NodeGateSpec){func(spec *v1alpha1.NodeGateSpec) {
		spec.Tolerate = true
		spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: name}}
	}}, change...)...)
}

// syncer is a Reconciler whose writes of PodTemplates are recorded.
type syncer struct {
	*Reconciler
	t      *testing.T
	writes []string
	// refuse, if not nil, is the result of writes of the parameter, or only of those that
	// contain the taint key refused.
	refuse  error
	refused string
}

func newSyncer(t *testing.T) *syncer {
	s := &syncer{t: t}
	note := func(obj client.Object) error {
		template, ok := obj.(*corev1.PodTemplate)
		if !ok {
			return nil
		}
		s.writes = append(s.writes, template.Name)
		has := func(t corev1.Toleration) bool { return t.Key == s.refused }
		if template.Name == v1alpha1.TolerationsParameter && (s.refused == "" || slices.ContainsFunc(template.Template.Spec.Tolerations, has)) {
			return s.refuse
		}
		return nil
	}
	s.Reconciler = New(controllertest.Client(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := note(obj); err != nil {
				return err
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if err := note(obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, o...)
		},
	}), "nodegate-system", logr.Discard())
	return s
}

// sync reconciles a set with these gates, and returns the gates with entries.
func (s *syncer) sync(complete bool, gates ...*v1alpha1.NodeGate) []string {
	s.t.Helper()
	set := gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: gates, Complete: complete}, gate.KeyPolicy{})
	s.reconcile(s.t.Context(), set, clock.RealClock{})
	var p corev1.PodTemplate
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "nodegate-system", Name: v1alpha1.TolerationsParameter}, &p)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range admission.EntriesOfTolerations(&p) {
		names = append(names, e.Gate)
	}
	return names
}

// The parameter contains the gates that set tolerate and are in force. It is not created
// before there is one, and is not written if nothing changes.
func TestTolerationsParameter(t *testing.T) {
	s := newSyncer(t)
	plain := controllertest.Gate("plain")
	if names := s.sync(true, plain); len(names) > 0 || slices.Contains(s.writes, v1alpha1.TolerationsParameter) {
		t.Errorf("without such a gate: entries %q, writes %q", names, s.writes)
	}
	dry := tolerating("dry", func(spec *v1alpha1.NodeGateSpec) { spec.Mode = v1alpha1.ModeDryRun })
	paused := tolerating("paused", func(spec *v1alpha1.NodeGateSpec) { spec.Mode = v1alpha1.ModePaused })
	if names := s.sync(true, plain, dry, paused, tolerating("one")); !slices.Equal(names, []string{"one", "paused"}) {
		t.Errorf("entries %q", names)
	}
	written := len(s.writes)
	if s.sync(true, plain, dry, paused, tolerating("one")); len(s.writes) != written {
		t.Errorf("without a change: writes %q", s.writes[written:])
	}
	broken := &v1alpha1.NodeGate{ReadError: "unreadable"}
	broken.Name = "one"
	for name, c := range map[string]struct {
		complete bool
		gates    []*v1alpha1.NodeGate
		want     []string
	}{
		"unreadable":      {true, []*v1alpha1.NodeGate{broken}, []string{"one"}},
		"list incomplete": {false, nil, []string{"one"}},
		"deleted":         {true, nil, nil},
		"not requested":   {true, []*v1alpha1.NodeGate{controllertest.Gate("one")}, nil},
	} {
		s.sync(true, tolerating("one"))
		if names := s.sync(c.complete, c.gates...); !slices.Equal(names, c.want) {
			t.Errorf("%s: entries %q, want %q", name, names, c.want)
		}
	}
}

// The tolerations are written before the gate is closed on new nodes. When the latter is
// proved, an API server has received both.
func TestTolerationsAreWrittenFirst(t *testing.T) {
	s := newSyncer(t)
	s.sync(true, tolerating("one"))
	if want := []string{v1alpha1.TolerationsParameter, v1alpha1.BirthParameter}; !slices.Equal(s.writes, want) {
		t.Errorf("writes %q, want %q", s.writes, want)
	}
}

// An entry that the API server rejects affects no other gate, old or new.
func TestTolerationsOfOneGateNotWritten(t *testing.T) {
	for name, existing := range map[string]bool{"existing parameter": true, "no parameter": false} {
		t.Run(name, func(t *testing.T) {
			s := newSyncer(t)
			old, bad, good := tolerating("a-old"), tolerating("b-bad"), tolerating("c-good")
			bad.Spec.Taint.Key = "example.com/refused"
			if existing {
				s.sync(true, old, tolerating("deleted"))
			}
			s.refused, s.refuse = bad.Spec.Taint.Key, apierrors.NewForbidden(corev1.Resource("podtemplates"), v1alpha1.TolerationsParameter, errors.New("not allowed"))
			if names := s.sync(true, old, bad, good); !slices.Equal(names, []string{"a-old", "c-good"}) {
				t.Errorf("entries of %q", names)
			}
			if err := errors.Join(s.TolerationsError("a-old"), s.TolerationsError("c-good")); err != nil {
				t.Errorf("other gates: %v", err)
			}
			if err := s.TolerationsError("b-bad"); err == nil || !strings.Contains(err.Error(), "not allowed") {
				t.Errorf("the gate: %v", err)
			}
		})
	}
}

// An entry whose taint is no longer allowed prevents neither that other gates are added, nor
// that they are removed.
func TestTolerationsOfOneGateNoLongerAllowed(t *testing.T) {
	s := newSyncer(t)
	bad, good := tolerating("a-bad"), tolerating("b-good")
	bad.Spec.Taint.Key = "example.com/refused"
	s.sync(true, bad, good)
	s.refused, s.refuse = bad.Spec.Taint.Key, apierrors.NewForbidden(corev1.Resource("podtemplates"), v1alpha1.TolerationsParameter, errors.New("not allowed"))
	if names := s.sync(true, bad, good, tolerating("c-new")); !slices.Equal(names, []string{"b-good", "c-new"}) {
		t.Errorf("with a new gate, entries of %q", names)
	}
	if err := errors.Join(s.TolerationsError("b-good"), s.TolerationsError("c-new")); err != nil {
		t.Errorf("other gates: %v", err)
	}
	if names := s.sync(true, bad); len(names) > 0 || s.TolerationsError("a-bad") == nil {
		t.Errorf("with the others deleted, entries of %q, error %v", names, s.TolerationsError("a-bad"))
	}
}

// A parameter that cannot be written is an error of the gates that need it. Closing at
// birth does not depend on it.
func TestTolerationsNotWritten(t *testing.T) {
	s := newSyncer(t)
	s.refuse = apierrors.NewForbidden(corev1.Resource("podtemplates"), v1alpha1.TolerationsParameter, errors.New("no role"))
	one, plain := tolerating("one"), controllertest.Gate("plain")
	s.sync(true, one, plain)
	if err := s.TolerationsError("one"); err == nil || !strings.Contains(err.Error(), "no role") {
		t.Errorf("the gate that needs it: %v", err)
	}
	if err := errors.Join(s.TolerationsError("plain"), s.Proved(plain), s.Proved(one)); err != nil {
		t.Errorf("everything else: %v", err)
	}
	s.refuse = nil
	if s.sync(true, one, plain); s.TolerationsError("one") != nil {
		t.Errorf("after it was written: %v", s.TolerationsError("one"))
	}
	many := tolerating("many", func(spec *v1alpha1.NodeGateSpec) {
		spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"ns"}}}
		in := v1alpha1.LabelSelectorRequirement{Key: "a", Operator: "In"}
		for i := range 8200 {
			in.Values = append(in.Values, strconv.Itoa(i))
		}
		spec.OpenWhen[0].DaemonSets.Selector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{in}
	})
	if names := s.sync(true, one, many); !slices.Equal(names, []string{"one"}) || s.TolerationsError("many") == nil || s.TolerationsError("one") != nil {
		t.Errorf("too many: entries %q, errors %v and %v", names, s.TolerationsError("many"), s.TolerationsError("one"))
	}
}
