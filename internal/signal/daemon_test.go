// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const (
	ready       = v1alpha1.ReadingReady
	missing     = v1alpha1.ReadingPodMissing
	stale       = v1alpha1.ReadingStaleEvidence
	notObserved = v1alpha1.ReadingNotObserved
	notEligible = v1alpha1.ReadingDaemonSetNotEligible

	notByDaemonSet = v1alpha1.ReadingPodNotByDaemonSet
	deadlock       = v1alpha1.ReadingDaemonDoesNotTolerateGate

	// intolerant is the subject of a deadlock.
	intolerant = "kube-system/agent does not tolerate " + gateKey + ":NoSchedule"
)

func TestDaemonSet(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}})
	const ds, pod = "kube-system/agent", "kube-system/agent-x"
	check(t, s, map[string]reads{
		"its pod is ready":   {aNode(with("agent"), running("agent")), gate.Holds, ready, pod},
		"not ready":          {aNode(with("agent"), running("agent", notReady)), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"terminating":        {aNode(with("agent"), running("agent", terminating)), gate.NotYet, v1alpha1.ReadingPodTerminating, pod},
		"no pod":             {aNode(with("agent")), gate.NotYet, missing, ds},
		"finished":           {aNode(with("agent"), running("agent", finished)), gate.NotYet, missing, ds},
		"a mirror pod":       {aNode(with("agent"), running("agent", mirror)), gate.NotYet, missing, ds},
		"adopted, or forged": {aNode(with("agent"), running("agent", unlabelled)), gate.NotYet, notByDaemonSet, pod},
		"forged, and a real one": {aNode(with("agent"), running("agent", unlabelled, named("a-forged")), running("agent", notReady)),
			gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"forged, real one ready": {aNode(with("agent"), running("agent", unlabelled, notReady, named("a-forged")), running("agent")), gate.Holds, ready, pod},
		"forged, wrong node":     {aNode(with("agent", onlyOn("cpu")), running("agent", unlabelled)), gate.NotYet, notByDaemonSet, pod},
		"forged, deadlock":       {aNode(with("agent", tolerating()), running("agent", unlabelled)), gate.NotYet, deadlock, intolerant},
		"another owner's pod":    {aNode(with("agent"), running("agent", ofAnotherOwner)), gate.NotYet, missing, ds},
		"of a former DaemonSet":  {aNode(with("agent", func(ds *gate.DaemonSet) { ds.UID = "new" }), running("agent")), gate.NotYet, missing, ds},
		"no DaemonSet":           {aNode(), gate.NotYet, v1alpha1.ReadingDaemonSetNotFound, ds},
		"only others":            {aNode(with("a"), with("z")), gate.NotYet, v1alpha1.ReadingDaemonSetNotFound, ds},
		"among others":           {aNode(with("a"), with("agent"), with("z"), running("agent")), gate.Holds, ready, pod},
		"sets not observed":      {aNode(with("agent"), running("agent"), unobservedSets), gate.Unknown, notObserved, "DaemonSet " + ds},
		"no sets at all":         {aNode(func(w *world) { w.facts.DaemonSets = nil }), gate.Unknown, notObserved, "DaemonSet " + ds},
		"pods not observed":      {aNode(with("agent"), unobservedPods("agent")), gate.Unknown, notObserved, ds},
		"older than the Node":    {aNode(with("agent"), nodeCreated(59*time.Second), running("agent", olderThanNode)), gate.NotYet, stale, pod},
		"a minute of the Node":   {aNode(with("agent"), nodeCreated(time.Minute), running("agent", olderThanNode)), gate.Holds, ready, pod},
		"two, one is ready": {aNode(with("agent"), running("agent", terminating, named("old")), running("agent")),
			gate.Holds, ready, pod},
		"two, one is stale": {aNode(with("agent"), nodeCreated(time.Second), running("agent", notReady, named("new")), running("agent", olderThanNode)),
			gate.NotYet, v1alpha1.ReadingPodNotReady, "kube-system/new"},
		"of another pool":                            {aNode(with("agent", onlyOn("cpu"))), gate.NotYet, notEligible, ds},
		"of this pool":                               {aNode(with("agent", onlyOn("gpu"))), gate.NotYet, missing, ds},
		"of another pool, and here":                  {aNode(with("agent", onlyOn("cpu")), running("agent")), gate.Holds, ready, pod},
		"of another pool, and in a deadlock":         {aNode(with("agent", onlyOn("cpu"), tolerating())), gate.NotYet, notEligible, ds},
		"names another node":                         {aNode(with("agent", func(ds *gate.DaemonSet) { ds.NodeName = "n2" })), gate.NotYet, notEligible, ds},
		"does not tolerate its gate":                 {aNode(with("agent", tolerating())), gate.NotYet, deadlock, intolerant},
		"does not tolerate its gate, terminating":    {aNode(with("agent", tolerating()), running("agent", terminating)), gate.NotYet, deadlock, intolerant},
		"does not tolerate its gate, not ready":      {aNode(with("agent", tolerating()), running("agent", notReady)), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"does not tolerate its gate, ready":          {aNode(with("agent", tolerating()), running("agent")), gate.Holds, ready, pod},
		"does not tolerate its gate, stale":          {aNode(with("agent", tolerating()), nodeCreated(time.Second), running("agent", olderThanNode)), gate.NotYet, stale, pod},
		"does not tolerate a pool":                   {aNode(with("agent", tolerating(gateKey)), tainted("pool", corev1.TaintEffectNoSchedule)), gate.NotYet, notEligible, ds},
		"does not tolerate a pool, nor its gate":     {aNode(with("agent", tolerating()), tainted("pool", corev1.TaintEffectNoSchedule)), gate.NotYet, notEligible, ds},
		"does not tolerate a pool, PreferNoSchedule": {aNode(with("agent", tolerating(gateKey)), tainted("pool", corev1.TaintEffectPreferNoSchedule)), gate.NotYet, missing, ds},
	})
	// The DaemonSet controller keeps the oldest pod, unless the rollout surges.
	older, younger := created(10*time.Minute), created(5*time.Minute)
	check(t, s, map[string]reads{
		"the older one is ready":          {aNode(with("agent"), running("agent", older), running("agent", younger, notReady, named("b"))), gate.Holds, ready, pod},
		"the younger one is ready":        {aNode(with("agent"), running("agent", older, notReady), running("agent", younger, named("b"))), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"first by name, and younger":      {aNode(with("agent"), running("agent", younger, named("a")), running("agent", older, notReady)), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"same age, first by name":         {aNode(with("agent"), running("agent", older, notReady), running("agent", older, named("z"))), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"the older one is terminating":    {aNode(with("agent"), running("agent", older, terminating), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"the older one has finished":      {aNode(with("agent"), running("agent", older, finished), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"the older one is forged":         {aNode(with("agent"), running("agent", older, unlabelled), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"the older one has another owner": {aNode(with("agent"), running("agent", older, ofAnotherOwner, notReady), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"older, of the former Node":       {aNode(with("agent"), nodeCreated(7*time.Minute), running("agent", older, notReady), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"surging, the new one ready":      {aNode(with("agent", surging), running("agent", older, notReady), running("agent", younger, named("b"))), gate.Holds, ready, "kube-system/b"},
		"surging, the old one ready":      {aNode(with("agent", surging), running("agent", older), running("agent", younger, notReady, named("b"))), gate.Holds, ready, pod},
		"surging, the new one forged":     {aNode(with("agent", surging), running("agent", older, notReady), running("agent", younger, unlabelled, named("b"))), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
	})
	if !s.ProvesBoot() {
		t.Error("does not prove the boot")
	}
}

// If a stale pod exists in addition to one that is not ready, the reading is repeated
// when the stale pod becomes evidence.
func TestRecheckOfTheSecondPod(t *testing.T) {
	beside := func(s v1alpha1.SignalSource) {
		w := aNode(with("agent"), nodeCreated(time.Second), running("agent", notReady, named("new")), running("agent", olderThanNode))
		if r, _ := read(t, mustCompile(t, s), w); !r.Recheck.Equal(epoch.Add(59 * time.Second)) {
			t.Errorf("recheck at %s", r.Recheck)
		}
	}
	beside(v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}})
	beside(v1alpha1.SignalSource{Pods: anyPod})
}

func TestDaemonSetRollout(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}})
	for name, c := range map[string]struct {
		node *world
		want bool
	}{
		"the pod is being replaced":   {aNode(with("agent", rollingOut), running("agent", terminating)), true},
		"the pod is not there":        {aNode(with("agent", rollingOut)), true},
		"the new one is not ready":    {aNode(with("agent", rollingOut), running("agent", notReady)), true},
		"not even a status":           {aNode(with("agent", rollingOut), running("agent", notReady, func(p *gate.Pod) { p.ReadySince = time.Time{} })), true},
		"the node's clock is slow":    {aNode(with("agent", rollingOut), running("agent", notReady, created(time.Second))), true},
		"an old one fails meanwhile":  {aNode(with("agent", rollingOut), running("agent", notReady, created(time.Hour))), false},
		"the new one fails again":     {aNode(with("agent", rollingOut), running("agent", notReady, created(91*time.Second))), false},
		"surging, the new pod first":  {aNode(with("agent", rollingOut, surging), running("agent", notReady, created(time.Hour)), running("agent", terminating)), true},
		"surging, the old pod first":  {aNode(with("agent", rollingOut, surging), running("agent", terminating), running("agent", notReady, created(time.Hour))), true},
		"no rollout":                  {aNode(with("agent"), running("agent", terminating)), false},
		"it does not run on the node": {aNode(with("agent", rollingOut, onlyOn("cpu"))), false},
		"it is ready":                 {aNode(with("agent", rollingOut), running("agent")), false},
	} {
		if r, _ := read(t, s, c.node); r.Rollout != c.want {
			t.Errorf("%s: rollout %v", name, r.Rollout)
		}
	}
}

// The DaemonSet controller creates no pods for a DaemonSet that is being deleted, which can
// take as long as a pod on a node that is dead. A daemonSets signal does not wait for it, as
// if it were already deleted. One that names it still holds on nodes on which a pod is ready.
func TestDeletedDaemonSet(t *testing.T) {
	beingDeleted := v1alpha1.ReadingDaemonSetBeingDeleted
	const ds, pod = "kube-system/agent", "kube-system/agent-x"
	check(t, mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}), map[string]reads{
		"no pod":                     {aNode(with("agent", deleting)), gate.NotYet, beingDeleted, ds},
		"terminating":                {aNode(with("agent", deleting), running("agent", terminating)), gate.NotYet, beingDeleted, ds},
		"not ready":                  {aNode(with("agent", deleting), running("agent", notReady)), gate.NotYet, v1alpha1.ReadingPodNotReady, pod},
		"ready":                      {aNode(with("agent", deleting), running("agent")), gate.Holds, ready, pod},
		"does not tolerate its gate": {aNode(with("agent", deleting, tolerating())), gate.NotYet, beingDeleted, ds},
		"of another pool":            {aNode(with("agent", deleting, onlyOn("cpu"))), gate.NotYet, beingDeleted, ds},
		"pods not observed":          {aNode(with("agent", deleting), unobservedPods("agent")), gate.Unknown, notObserved, ds},
	})
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}})
	all, none := v1alpha1.ReadingDaemonsReady, v1alpha1.ReadingNoDaemonSetBelongs
	check(t, s, map[string]reads{
		"several, no pod":            {aNode(with("agent", deleting), with("b"), running("b")), gate.Holds, all, ""},
		"several, not ready":         {aNode(with("agent", deleting), with("b"), running("agent", notReady), running("b")), gate.Holds, all, ""},
		"several, terminating":       {aNode(with("agent", deleting), with("b"), running("agent", terminating), running("b")), gate.Holds, all, ""},
		"several, pods not observed": {aNode(with("agent", deleting), with("b"), running("b"), unobservedPods("agent")), gate.Holds, all, ""},
		"several, the other waits":   {aNode(with("agent", deleting), with("b"), running("agent")), gate.NotYet, missing, "kube-system/b"},
		"the only one":               {aNode(with("agent", deleting)), gate.Holds, none, ""},
	})
	w := aNode(with("agent", deleting), running("agent"))
	if pods, observed := s.Evidence(&w.facts); len(pods) != 0 || !observed {
		t.Errorf("evidence %v, observed %t", pods, observed)
	}
	if n := s.Needs(&w.sets); len(n.Pods) != 0 {
		t.Errorf("needs %+v", n)
	}
}

// A daemon that fails closes the gate after closeAfterSeconds, also while its DaemonSet's
// rollout is not finished on another node, such as one that is being created or is dead.
func TestFailureDuringARolloutElsewhere(t *testing.T) {
	for name, source := range map[string]v1alpha1.SignalSource{
		"daemonSet":  {DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}},
		"daemonSets": {DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}},
		"pods":       {Pods: anyPod},
	} {
		w := aNode(with("agent", rollingOut), running("agent", notReady, created(time.Hour)))
		g := aClosedGate(mustCompile(t, source), gate.Record{}, w)
		g.Reclose, g.CloseAfter, g.RolloutGrace = v1alpha1.RecloseOnRegression, 2*time.Minute, 10*time.Minute
		open := gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: "a", Taint: gate.TaintText(g.Taint), Source: g.Source}
		w.facts.Node.Records["cni"], w.facts.Node.Taints = open.String(), nil
		w.facts.Granted = map[string]bool{"cni": true}
		d := gate.Decide([]gate.Gate{g}, &w.facts, epoch)
		w.facts.Lost = map[string][]gate.Lost{"cni": d.Verdicts[0].Lost}
		if want := epoch.Add(90 * time.Second); d.Changes || !d.Recheck.Equal(want) { // it has not been ready for 30 seconds
			t.Errorf("%s: changes %t, recheck at %s, want %s", name, d.Changes, d.Recheck, want)
		}
		if d := gate.Decide([]gate.Gate{g}, &w.facts, d.Recheck); d.Verdicts[0].Reason != v1alpha1.ReasonRegression {
			t.Errorf("%s: after two minutes, %s (%s)", name, d.Verdicts[0].After, d.Verdicts[0].Reason)
		}
	}
}

func TestDaemonSetNeedsAndEvidence(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}})
	w := aNode(with("agent"), running("agent"), running("agent", ofAnotherOwner))
	if n := s.Needs(nil); !slices.Equal(n.DaemonSetNamespaces, []string{"kube-system"}) || len(n.Pods) != 0 {
		t.Errorf("before any DaemonSet is known: %+v", n)
	}
	if n := s.Needs(&w.sets); !slices.Equal(n.Pods, []gate.PodQuery{query("agent")}) {
		t.Errorf("needs %+v", n)
	}
	for name, c := range map[string]struct {
		node     *world
		pods     int
		observed bool
	}{
		"its own pods":      {w, 1, true},
		"no DaemonSet":      {aNode(), 0, false},
		"sets not observed": {aNode(unobservedSets), 0, false},
		"pods not observed": {aNode(with("agent"), unobservedPods("agent")), 0, false},
	} {
		if pods, observed := s.Evidence(&c.node.facts); len(pods) != c.pods || observed != c.observed {
			t.Errorf("%s: %d pods, observed %v", name, len(pods), observed)
		}
	}
}

func TestDaemonSets(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}})
	noSchedule, prefer := corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule
	all, none, setUp := v1alpha1.ReadingDaemonsReady, v1alpha1.ReadingNoDaemonSetBelongs, v1alpha1.ReadingNodeBeingSetUp
	only := func(keys ...string) func(*world) { return with("agent", tolerating(append(keys, gateKey)...)) }
	check(t, s, map[string]reads{
		"all are ready":                          {aNode(with("agent"), with("b"), running("agent"), running("b")), gate.Holds, all, ""},
		"one has no pod":                         {aNode(with("agent"), with("b"), running("agent")), gate.NotYet, missing, "kube-system/b"},
		"one is not ready":                       {aNode(with("agent"), with("b"), running("agent", notReady), running("b")), gate.NotYet, v1alpha1.ReadingPodNotReady, "kube-system/agent-x"},
		"one does not run on the node":           {aNode(with("agent"), with("b", onlyOn("cpu")), running("agent")), gate.Holds, all, ""},
		"not observed":                           {aNode(with("agent"), running("agent"), unobservedSets), gate.Unknown, notObserved, "namespace kube-system"},
		"pods not observed":                      {aNode(with("agent"), with("b"), running("agent"), unobservedPods("b")), gate.Unknown, notObserved, "kube-system/b"},
		"NotYet takes precedence over Unknown":   {aNode(with("agent"), with("b"), unobservedPods("b")), gate.NotYet, missing, "kube-system/agent"},
		"NotYet takes precedence, Unknown first": {aNode(with("agent"), with("b"), unobservedPods("agent")), gate.NotYet, missing, "kube-system/b"},
		"stale":                                  {aNode(with("agent"), nodeCreated(time.Second), running("agent", olderThanNode)), gate.NotYet, stale, "kube-system/agent-x"},
		"deadlock":                               {aNode(with("agent", tolerating())), gate.NotYet, deadlock, intolerant},

		"a transient taint does not exclude":            {aNode(only(), tainted("node.cloudprovider.kubernetes.io/shutdown", noSchedule)), gate.NotYet, missing, "kube-system/agent"},
		"another tool's startup taint does not exclude": {aNode(only(), tainted("startup-taint.cluster-autoscaler.kubernetes.io/x", noSchedule)), gate.NotYet, missing, "kube-system/agent"},
		"a CSI driver's taint does not exclude":         {aNode(only(), tainted("x.csi.example/agent-not-ready", noSchedule)), gate.NotYet, missing, "kube-system/agent"},
		"another gate's taint does not exclude":         {aNode(only(), tainted("g.example/x", noSchedule), func(w *world) { w.facts.Transient.GateKeys["g.example/x"] = true }), gate.NotYet, missing, "kube-system/agent"},
		"a configured transient taint does not exclude": {aNode(only(), tainted("mine.example/x", noSchedule), func(w *world) { w.facts.Transient.Prefixes = []string{"mine."} }), gate.NotYet, missing, "kube-system/agent"},
		"its own gate's taint does not exclude":         {aNode(with("agent", tolerating()), func(w *world) { w.facts.Transient.GateKeys = nil }), gate.NotYet, deadlock, intolerant},
		"a lasting taint excludes":                      {aNode(only(), tainted("pool", noSchedule)), gate.Holds, none, ""},
		"a tolerated lasting taint does not exclude":    {aNode(only("pool"), tainted("pool", noSchedule)), gate.NotYet, missing, "kube-system/agent"},
		"a PreferNoSchedule taint does not exclude":     {aNode(only(), tainted("pool", prefer)), gate.NotYet, missing, "kube-system/agent"},
		"an empty set holds":                            {aNode(), gate.Holds, none, ""},
		"an empty set does not hold during setup":       {aNode(tainted("node.kubernetes.io/not-ready", noSchedule)), gate.NotYet, setUp, "node.kubernetes.io/not-ready:NoSchedule"},
		"nor while the node is cordoned":                {aNode(tainted("node.kubernetes.io/unschedulable", noSchedule)), gate.NotYet, setUp, "node.kubernetes.io/unschedulable:NoSchedule"},
		"a soft transient taint is no setup":            {aNode(tainted("DeletionCandidateOfClusterAutoscaler", prefer)), gate.Holds, none, ""},
		"another gate's taint is not foreign": {aNode(tainted("readiness.k8s.io/x", noSchedule), func(w *world) { w.facts.Transient.GateKeys["readiness.k8s.io/x"] = true }),
			gate.Holds, none, ""},
	})
}

// A node on which no DaemonSet should run stays open while it is cordoned, under pressure or
// being repaired.
func TestOpenGateWithoutDaemons(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}})
	w := aNode(tainted("node.kubernetes.io/unschedulable", corev1.TaintEffectNoSchedule))
	g := aClosedGate(s, gate.Record{}, w)
	g.Reclose = v1alpha1.RecloseOnRegression
	open := gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: "a", Taint: gate.TaintText(g.Taint), Source: g.Source}
	w.facts.Node.Records["cni"] = open.String()
	w.facts.Granted = map[string]bool{"cni": true}
	w.facts.Node.Taints = w.facts.Node.Taints[len(w.facts.Node.Taints)-1:]
	if d := gate.Decide([]gate.Gate{g}, &w.facts, epoch); d.Changes || d.Verdicts[0].After != v1alpha1.StateOpen {
		t.Errorf("%+v", d.Verdicts[0])
	}
}

func TestDaemonSetsSelects(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{
		Namespaces: []string{"kube-system", "gpu"}, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}})
	elsewhere := func(ds *gate.DaemonSet) { ds.Namespace = "elsewhere" }
	w := aNode(with("agent", elsewhere), with("agent"), with("b"), running("agent"), running("b"))
	if r, _ := read(t, s, w); r.State != gate.Unknown || r.Subject != "namespace gpu" {
		t.Errorf("one namespace is not observed: %+v", r)
	}
	w.sets.Observed["gpu"] = true
	if r, _ := read(t, s, w); r.State != gate.Holds {
		t.Errorf("the selected one is ready: %+v", r)
	}
	if n := s.Needs(&w.sets); len(n.Pods) != 1 || len(n.DaemonSetNamespaces) != 2 {
		t.Errorf("needs %+v", n)
	}
	if n := s.Needs(nil); len(n.Pods) != 0 || len(n.DaemonSetNamespaces) != 2 {
		t.Errorf("needs, before any is known: %+v", n)
	}
	if pods, observed := s.Evidence(&w.facts); len(pods) != 1 || !observed {
		t.Errorf("evidence %v, %v", pods, observed)
	}
	delete(w.facts.Pods, query("agent"))
	if _, observed := s.Evidence(&w.facts); observed {
		t.Error("evidence from unobserved pods")
	}
	if _, observed := s.Evidence(&aNode(unobservedSets).facts); observed {
		t.Error("evidence from unobserved DaemonSets")
	}
}

// If several daemons are not ready, the one that no rollout excuses determines the
// result.
func TestDaemonSetsRollout(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}})
	for name, c := range map[string]struct {
		node    *world
		rollout bool
	}{
		"one, excused":     {aNode(with("agent", rollingOut), with("b"), running("b")), true},
		"excused and not":  {aNode(with("agent", rollingOut), with("b")), false},
		"not, and excused": {aNode(with("agent"), with("b", rollingOut)), false},
		"both excused":     {aNode(with("agent", rollingOut), with("b", rollingOut)), true},
	} {
		if r, _ := read(t, s, c.node); r.Rollout != c.rollout || r.State != gate.NotYet {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
