// SPDX-License-Identifier: Apache-2.0

package tolerate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/release"
)

// waiting returns a gate with the taint example.com/<name> that waits for a DaemonSet.
func waiting(name, daemon string, change ...func(*v1alpha1.NodeGate)) v1alpha1.NodeGate {
	ng := v1alpha1.NodeGate{}
	ng.Name = name
	ng.Spec.Taint = v1alpha1.Taint{Key: "example.com/" + name, Effect: corev1.TaintEffectNoSchedule}
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "s", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: daemon}}}}
	for _, f := range change {
		f(&ng)
	}
	return ng
}

func tolerates(keys ...string) (all []corev1.Toleration) {
	for _, key := range keys {
		all = append(all, corev1.Toleration{Key: "example.com/" + key, Operator: corev1.TolerationOpExists})
	}
	return all
}

// The plan contains the DaemonSets that lack a toleration, and the gates that wait for them.
// Gates that are not in force, cannot be read or do not wait are ignored.
func TestOf(t *testing.T) {
	declared := []v1alpha1.NodeGate{
		waiting("a", "agent"), waiting("b", "agent"), waiting("c", "tolerant"), waiting("d", "missing"),
		waiting("dry", "agent", func(ng *v1alpha1.NodeGate) { ng.Spec.Mode = v1alpha1.ModeDryRun }),
		waiting("closing", "agent", func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen, ng.Spec.CloseWhen = nil, ng.Spec.OpenWhen }),
		waiting("unreadable", "agent", func(ng *v1alpha1.NodeGate) { ng.ReadError = "broken" }),
		waiting("core", "agent", func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key = "example.com/forbidden" }),
	}
	allowed, err := gate.ParseAllowedTaints([]string{"example.com/a", "example.com/b", "example.com/c", "example.com/d", "example.com/dry", "example.com/closing"})
	if err != nil {
		t.Fatal(err)
	}
	set := gateset.Of(declared, gate.KeyPolicy{Allowed: allowed}, gateset.IgnoreStatus)
	sets := &gate.DaemonSets{Items: []gate.DaemonSet{
		{Namespace: "ns", Name: "agent", Tolerations: tolerates("b")}, {Namespace: "ns", Name: "other"}, {Namespace: "ns", Name: "tolerant", Tolerations: tolerates("c")},
		{Namespace: "other", Name: "agent"},
		{Namespace: "ns", Name: "missing", Deleting: true}, // its pods are not replaced
	}}
	for name, c := range map[string]struct {
		gates        []string
		want, waited string
	}{
		"all gates": {nil, "[ns/agent for [a dry]]", "map[ns/agent:true ns/tolerant:true]"},
		"some":      {[]string{"b", "c"}, "[]", "map[ns/agent:true ns/tolerant:true]"},
		"one":       {[]string{"a"}, "[ns/agent for [a]]", "map[ns/agent:true]"},
	} {
		entries, err := Waited(set, c.gates)
		if err != nil {
			t.Fatal(err)
		}
		if got := Namespaces(entries); !slices.Equal(got, []string{"ns"}) {
			t.Errorf("%s: namespaces %q", name, got)
		}
		plans, waited := Of(entries, sets)
		lines := []string{}
		for _, p := range plans {
			lines = append(lines, fmt.Sprint(p.String(), " for ", p.Gates))
		}
		if got := fmt.Sprint(lines); got != c.want || fmt.Sprint(waited) != c.waited {
			t.Errorf("%s: plans %s, waited for %v, want %s and %s", name, got, waited, c.want, c.waited)
		}
	}
}

// Gates that wait for what a daemon provides, and name no DaemonSet, are reported: nothing is known
// about the tolerations of their DaemonSets.
func TestWithoutDaemonSets(t *testing.T) {
	by := func(sources ...v1alpha1.SignalSource) func(*v1alpha1.NodeGate) {
		return func(ng *v1alpha1.NodeGate) {
			ng.Spec.OpenWhen = nil
			for i, s := range sources {
				ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: fmt.Sprint("s", i), SignalSource: s})
			}
		}
	}
	pods := v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{Namespace: "ns"}}
	driver, gpu := v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "d.example.com"}}, v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: "example.com/gpu"}}
	slicesOf := v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "d.example.com"}}
	label := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}
	daemon := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: "agent"}}
	declared := []v1alpha1.NodeGate{
		waiting("a", "agent"), waiting("label", "", by(label)), waiting("both", "", by(driver, daemon)),
		waiting("driver", "", by(driver, gpu, driver)),
		waiting("pods", "", by(pods), func(ng *v1alpha1.NodeGate) {
			ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: "example.com/again", Effect: corev1.TaintEffectNoExecute}
		}),
		waiting("slices", "", by(slicesOf), func(ng *v1alpha1.NodeGate) { ng.Spec.Mode = v1alpha1.ModeDryRun }),
		waiting("prefer", "", by(pods), func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Effect = corev1.TaintEffectPreferNoSchedule }),
		waiting("closing", "", by(pods), func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen, ng.Spec.CloseWhen = nil, ng.Spec.OpenWhen }),
	}
	set := gateset.Of(declared, gate.KeyPolicy{}, gateset.IgnoreStatus)
	for name, c := range map[string]struct {
		gates []string
		want  string
	}{
		"all gates": {nil, "[{driver [csiDriver resource] [example.com/driver:NoSchedule]} {pods [pods] [example.com/pods:NoSchedule example.com/again:NoExecute]} {slices [resourceSlices] [example.com/slices:NoSchedule]}]"},
		"some":      {[]string{"a", "slices"}, "[{slices [resourceSlices] [example.com/slices:NoSchedule]}]"},
	} {
		if got := fmt.Sprint(WithoutDaemonSets(set, c.gates)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	const want = "All DaemonSets tolerate the taints of the gates that name or select them.\n" +
		"Gate driver names no DaemonSet (signals: csiDriver, resource): check that the DaemonSets behind it tolerate example.com/driver:NoSchedule, and add missing tolerations yourself.\n"
	if text := (&Report{GatesWithoutDaemonSets: WithoutDaemonSets(set, []string{"driver"})}).Text(); text != want {
		t.Errorf("the text is %q, want %q", text, want)
	}
}

// server is a fake API server with one DaemonSet.
type server struct {
	ds *appsv1.DaemonSet
	// policy adds these tolerations to each write.
	policy []corev1.Toleration
	// strip removes all tolerations from each write, as another policy might.
	strip bool
	// conflicts is the number of writes that fail with a conflict. before is called on each.
	conflicts int
	before    func(*appsv1.DaemonSet)
	owner     string
	// owned is true if the command has applied the list before.
	owned bool
	// lags is the number of writes to which the policy adds nothing, apart from dry runs.
	lags   int
	writes []string
}

func (s *server) DaemonSet(context.Context, string, string) (*appsv1.DaemonSet, error) {
	if s.ds == nil {
		return nil, errors.New("not found")
	}
	return s.ds.DeepCopy(), nil
}

func (s *server) Apply(_ context.Context, ds *appsv1.DaemonSet, tolerations []corev1.Toleration, force bool, dryRun []string) (*appsv1.DaemonSet, error) {
	s.writes = append(s.writes, fmt.Sprintf("apply %d of %s %v", len(tolerations), ds.UID, dryRun))
	if s.conflicts > 0 {
		s.conflicts--
		if s.before != nil {
			s.before(s.ds)
		}
		return nil, fmt.Errorf("applying: %w", write.ErrDaemonSetChanged)
	}
	if tolerations != nil && s.owner != "" && !force {
		return nil, &write.OwnedError{Managers: []string{s.owner}}
	}
	out := s.ds.DeepCopy()
	spec := &out.Spec.Template.Spec
	switch {
	case tolerations != nil:
		spec.Tolerations = tolerations
	case s.owned:
		spec.Tolerations = nil
	}
	if s.lags > 0 && len(dryRun) == 0 {
		s.lags--
	} else {
		spec.Tolerations = append(slices.Clone(spec.Tolerations), s.policy...)
	}
	if s.strip {
		spec.Tolerations = nil
	}
	if len(dryRun) == 0 {
		s.ds = out
	}
	return out.DeepCopy(), nil
}

func daemonSet(strategy appsv1.DaemonSetUpdateStrategyType, tolerations ...corev1.Toleration) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name, ds.UID = "ns", "agent", "uid"
	ds.Spec.UpdateStrategy.Type = strategy
	ds.Spec.Template.Spec.Tolerations = tolerations
	return ds
}

func deleting(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	ds.DeletionTimestamp = &metav1.Time{}
	return ds
}

// Each way to add tolerations writes what it must and nothing else, and the text describes it.
func TestRun(t *testing.T) {
	ng := waiting("a", "agent")
	entries, err := admission.TolerationEntries(&ng)
	if err != nil {
		t.Fatal(err)
	}
	plan := []Plan{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "agent"}, Entries: entries, Gates: []string{"a"}}}
	added := []corev1.Toleration{entries[0].Toleration()}
	const rolling, name = "  Its pods are replaced (update strategy RollingUpdate).\n", "daemonset.apps/ns/agent"
	for title, c := range map[string]struct {
		server server
		dryRun release.DryRun
		force  bool
		writes []string
		want   []corev1.Toleration
		text   string
		fails  bool
	}{
		"policy": {
			server: server{ds: daemonSet("", tolerates("x")...), policy: added, owner: "helm"},
			writes: []string{"apply 0 of uid [All]", "apply 0 of uid []"}, want: append(tolerates("x"), added...),
			text: name + " tolerates example.com/a:NoSchedule (added by policy nodegate-tolerations) of gate a\n" + rolling,
		},
		"policy, dry run": {
			server: server{ds: daemonSet("", tolerates("x")...), policy: added}, dryRun: release.DryRunServer,
			writes: []string{"apply 0 of uid [All]"}, want: tolerates("x"),
			text: name + " tolerates example.com/a:NoSchedule (added by policy nodegate-tolerations) of gate a (server dry run)\n" + rolling,
		},
		"policy of another API server": {
			server: server{ds: daemonSet(""), policy: added, lags: 1},
			writes: []string{"apply 0 of uid [All]", "apply 0 of uid []", "apply 0 of uid [All]", "apply 0 of uid []"}, want: added,
			text: name + " tolerates example.com/a:NoSchedule (added by policy nodegate-tolerations) of gate a\n" + rolling,
		},
		"policy, but the command owns the list": {
			server: server{ds: daemonSet("", tolerates("x")...), policy: added, owned: true},
			writes: []string{"apply 0 of uid [All]", "apply 2 of uid [All]", "apply 2 of uid []"}, want: slices.Concat(tolerates("x"), added, added),
			text: name + " tolerates example.com/a:NoSchedule of gate a\n" + rolling,
		},
		"apply": {
			server: server{ds: daemonSet("OnDelete", tolerates("x")...)},
			writes: []string{"apply 0 of uid [All]", "apply 2 of uid [All]", "apply 2 of uid []"}, want: append(tolerates("x"), added...),
			text: name + " tolerates example.com/a:NoSchedule of gate a\n  Its running pods are not replaced (update strategy OnDelete); new pods have the toleration.\n",
		},
		"client dry run": {
			server: server{ds: daemonSet("")}, dryRun: release.DryRunClient,
			text: name + " tolerates example.com/a:NoSchedule of gate a (dry run)\n" + rolling,
		},
		"owned": {
			server: server{ds: daemonSet("", tolerates("x")...), owner: "helm"}, want: tolerates("x"), fails: true,
			writes: []string{"apply 0 of uid [All]", "apply 2 of uid [All]"},
			text: name + " not changed: the list of tolerations is owned by helm. Add the toleration of example.com/a:NoSchedule there, or use --force-conflicts: " +
				"kubectl-gate-tolerate then owns the list, and the next server-side apply of the former owner fails with a conflict or, if it is forced, removes the toleration.\n",
		},
		"forced": {
			server: server{ds: daemonSet("", tolerates("x")...), owner: "helm"}, force: true, want: append(tolerates("x"), added...),
			writes: []string{"apply 0 of uid [All]", "apply 2 of uid [All]", "apply 2 of uid []"},
			text:   name + " tolerates example.com/a:NoSchedule of gate a\n" + rolling,
		},
		"conflict": {
			server: server{ds: daemonSet(""), conflicts: 2, before: func(ds *appsv1.DaemonSet) {
				ds.Spec.Template.Spec.Tolerations = append(ds.Spec.Template.Spec.Tolerations, tolerates("new")...)
			}},
			writes: []string{"apply 0 of uid [All]", "apply 0 of uid [All]", "apply 0 of uid [All]", "apply 3 of uid [All]", "apply 3 of uid []"},
			want:   append(tolerates("new", "new"), added...),
			text:   name + " tolerates example.com/a:NoSchedule of gate a\n" + rolling,
		},
		"added meanwhile": {
			server: server{ds: daemonSet("", tolerates("a")...)}, want: tolerates("a"),
			text: name + " unchanged: another writer has added the tolerations\n",
		},
		"created again": {
			server: server{ds: daemonSet(""), conflicts: 1, before: func(ds *appsv1.DaemonSet) { ds.UID = "another" }},
			writes: []string{"apply 0 of uid [All]"}, fails: true,
			text: name + " not changed: the DaemonSet was deleted and created again\n",
		},
		"removed by another policy": {
			server: server{ds: daemonSet("", tolerates("x")...), strip: true}, force: true, want: tolerates("x"), fails: true,
			writes: []string{"apply 0 of uid [All]", "apply 2 of uid [All]"},
			text:   name + " not changed: an admission policy or webhook for DaemonSets removes example.com/a:NoSchedule\n",
		},
		"being deleted": {
			server: server{ds: deleting(daemonSet(""))}, fails: true, text: name + " not changed: the DaemonSet is being deleted\n",
		},
		"gone": {fails: true, text: name + " not changed: not found\n"},
		"too many": {
			server: server{ds: daemonSet(""), conflicts: 100}, fails: true, writes: slices.Repeat([]string{"apply 0 of uid [All]"}, maxAttempts),
			text: name + " not changed: applying: the DaemonSet has changed since it was read\n",
		},
	} {
		s := &c.server
		r := (&Tolerator{Reader: s, Writer: s, DryRun: c.dryRun, Force: c.force}).Run(t.Context(), plan)
		if diff := cmp.Diff(c.writes, s.writes); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", title, diff)
		}
		if s.ds != nil {
			if diff := cmp.Diff(c.want, s.ds.Spec.Template.Spec.Tolerations); diff != "" {
				t.Errorf("%s: tolerations (-want +got):\n%s", title, diff)
			}
		}
		if diff := cmp.Diff(c.text, r.Text()); diff != "" {
			t.Errorf("%s: text (-want +got):\n%s", title, diff)
		}
		names := ""
		if !c.fails && !strings.Contains(c.text, "unchanged") {
			names = name + "\n"
		}
		if r.Complete() == c.fails || r.Names() != names {
			t.Errorf("%s: complete %t, names %q", title, r.Complete(), r.Names())
		}
	}
	if text := (&Report{}).Text(); text != "All DaemonSets tolerate the taints of the gates that wait for them.\n" {
		t.Errorf("nothing to do: %q", text)
	}
}
