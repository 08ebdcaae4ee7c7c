// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// lateView is a Reconciler whose gates may be observed later than the API server changes them.
type lateView struct {
	*Reconciler
	t *testing.T
	// stored is the gate in the API server, if any, and readErr the error of reading it.
	stored  *v1alpha1.NodeGate
	readErr error
	reads   int
}

func newLateView(t *testing.T) *lateView {
	v := &lateView{t: t}
	v.Reconciler = New(controllertest.Client(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			ng, is := obj.(*metav1.PartialObjectMetadata)
			if !is {
				return c.Get(ctx, key, obj, o...)
			}
			v.reads++
			switch {
			case v.readErr != nil:
				return v.readErr
			case v.stored == nil:
				return apierrors.NewNotFound(v1alpha1.Resource.GroupResource(), key.Name)
			}
			ng.ObjectMeta = v.stored.ObjectMeta
			return nil
		},
	}), "nodegate-system", logr.Discard())
	return v
}

// reconciled reconciles these gates, and returns the keys of the taints in the parameters.
func (v *lateView) reconciled(source string, gates ...*v1alpha1.NodeGate) (birth, tolerations string) {
	v.t.Helper()
	set := gateset.New(&gateset.Set{}, gateset.Snapshot{Source: source, Gates: gates, Complete: true}, gate.KeyPolicy{})
	v.reconcile(v.t.Context(), set, clock.RealClock{})
	key := func(name string) (key string) {
		var p corev1.PodTemplate
		if err := v.client.Get(v.t.Context(), client.ObjectKey{Namespace: "nodegate-system", Name: name}, &p); client.IgnoreNotFound(err) != nil {
			v.t.Fatal(err)
		}
		for _, toleration := range p.Template.Spec.Tolerations {
			key += toleration.Key
		}
		return key
	}
	return key(v1alpha1.BirthParameter), key(v1alpha1.TolerationsParameter)
}

// A leader whose watch of NodeGates is late does not undo what another leader has written, until it
// has observed the gate's change.
func TestEntriesOfUnobservedGatesRemain(t *testing.T) {
	const was, is = "example.com/was", "example.com/is"
	version := func(uid types.UID, generation int64, key string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
		ng := tolerating("one", change...)
		ng.UID, ng.Generation, ng.Spec.Taint.Key = uid, generation, key
		return ng
	}
	dry := func(spec *v1alpha1.NodeGateSpec) { spec.Mode = v1alpha1.ModeDryRun }
	for name, c := range map[string]struct {
		written, observed, stored *v1alpha1.NodeGate
		readErr                   error
		source                    string
		want                      string
	}{
		"created, and not observed":                {written: version("a", 1, is), stored: version("a", 1, is), want: is},
		"deleted":                                  {written: version("a", 1, is)},
		"unknown whether it was deleted":           {written: version("a", 1, is), readErr: errors.New("no answer"), want: is},
		"not found, by a proxy":                    {written: version("a", 1, is), readErr: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1alpha1.Resource.GroupResource(), "one", "", 0, true), want: is},
		"enabled, and not observed":                {written: version("a", 2, is), observed: version("a", 1, is, dry), stored: version("a", 2, is), want: is},
		"put into dry run":                         {written: version("a", 1, is), observed: version("a", 2, is, dry), stored: version("a", 2, is, dry)},
		"edited, and not observed":                 {written: version("a", 2, is), observed: version("a", 1, was), stored: version("a", 2, is), want: is},
		"edited":                                   {written: version("a", 1, was), observed: version("a", 2, is), stored: version("a", 2, is), want: is},
		"created again, and not observed":          {written: version("b", 1, is), observed: version("a", 1, was), stored: version("b", 1, is), want: is},
		"created again":                            {written: version("a", 1, was), observed: version("b", 1, is), stored: version("b", 1, is), want: is},
		"deleted, and not observed after an edit":  {written: version("a", 1, was), observed: version("a", 2, is), want: is},
		"from a file, but the API server has more": {written: version("a", 1, is), stored: version("a", 2, is), source: "files"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newLateView(t)
			v.stored = c.written
			v.reconciled(v1alpha1.SourceCRD, c.written)
			if v.reads > 0 {
				t.Errorf("%d reads of a gate whose entry was added, want none", v.reads)
			}
			v.stored, v.readErr = c.stored, c.readErr
			var observed []*v1alpha1.NodeGate
			if c.observed != nil {
				observed = append(observed, c.observed)
			}
			birth, tolerations := v.reconciled(cmp.Or(c.source, v1alpha1.SourceCRD), observed...)
			if birth != c.want || tolerations != c.want {
				t.Errorf("entries %q and %q, want %q", birth, tolerations, c.want)
			}
			if c.stored == nil || c.source != "" {
				return
			}
			if birth, tolerations = v.reconciled(v1alpha1.SourceCRD, c.stored); birth != tolerations || c.want != "" && birth != c.want {
				t.Errorf("after it was observed: entries %q and %q, want %q", birth, tolerations, c.want)
			}
			reads := v.reads
			if v.reconciled(v1alpha1.SourceCRD, c.stored); v.reads != reads {
				t.Errorf("%d reads although nothing changes", v.reads-reads)
			}
		})
	}
}

// An entry that cannot be removed is reported and tried again soon, because it closes new nodes.
func TestUnconfirmedRemovalIsReported(t *testing.T) {
	v := newLateView(t)
	ng := tolerating("one")
	v.reconciled(v1alpha1.SourceCRD, ng)
	dry := tolerating("one", func(spec *v1alpha1.NodeGateSpec) { spec.Mode = v1alpha1.ModeDryRun })
	dry.Generation = 2
	v.readErr = errors.New("no answer")
	v.reconciled(v1alpha1.SourceCRD, dry)
	if err := v.NotRemoved("one"); !errors.Is(err, v.readErr) {
		t.Errorf("error %v, want %v", err, v.readErr)
	}
	if now := (clock.RealClock{}).Now(); v.wait(now, now) > birthRemove {
		t.Errorf("tried again after %s, want %s at most", v.wait(now, now), birthRemove)
	}
	v.readErr, v.stored = nil, dry
	if birth, _ := v.reconciled(v1alpha1.SourceCRD, dry); birth != "" || v.NotRemoved("one") != nil {
		t.Errorf("entry %q remains: %v", birth, v.NotRemoved("one"))
	}
}

// Why an entry could not be changed is reported as the reason why new nodes are not closed by the gate's
// current version.
func TestUnconfirmedChangeIsReported(t *testing.T) {
	v := newLateView(t)
	ng := tolerating("one")
	v.reconciled(v1alpha1.SourceCRD, ng)
	edited := tolerating("one", func(spec *v1alpha1.NodeGateSpec) { spec.Taint.Key = "example.com/edited" })
	edited.Generation = 2
	v.readErr, v.pause = errors.New("no answer"), time.Time{}
	v.reconciled(v1alpha1.SourceCRD, edited)
	if err := v.Proved(edited); !errors.Is(err, v.readErr) {
		t.Errorf("error %v, want %v", err, v.readErr)
	}
	if err := v.TolerationsError("one"); !errors.Is(err, v.readErr) {
		t.Errorf("of the tolerations: %v, want %v", err, v.readErr)
	}
}

// An entry with a name that no gate can have does not remain, although there is no answer about its gate,
// or one about another gate: with such a name in it, the policy ignores the whole parameter.
func TestEntriesThatNoGateCanHaveAreRemoved(t *testing.T) {
	for _, name := range []string{"one/status", "example.com/one", "One", "%", ""} {
		t.Run(name, func(t *testing.T) {
			v := newLateView(t)
			v.stored = tolerating("one")
			v.reconciled(v1alpha1.SourceCRD, v.stored)
			v.rename(name)
			birth, tolerations := v.reconciled(v1alpha1.SourceCRD, v.stored)
			if want := v.stored.Spec.Taint.Key; birth != want || tolerations != want {
				t.Errorf("entries %q and %q, want %q", birth, tolerations, want)
			}
		})
	}
}

// rename changes the name of the gate in both parameters, as another writer would.
func (v *lateView) rename(name string) {
	v.t.Helper()
	var all corev1.PodTemplateList
	if err := v.client.List(v.t.Context(), &all); err != nil {
		v.t.Fatal(err)
	}
	for i := range all.Items {
		spec := &all.Items[i].Template.Spec
		if len(spec.SchedulingGates) > 0 {
			spec.SchedulingGates[0].Name = name
		} else {
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = name
		}
		if err := v.client.Update(v.t.Context(), &all.Items[i]); err != nil {
			v.t.Fatal(err)
		}
	}
}
