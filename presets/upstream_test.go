// SPDX-License-Identifier: Apache-2.0

package presets_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/feed"
	"github.com/nodegate/nodegate/internal/signal"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/presets/upstream"
)

// expectation is what a preset's comment says about what is shipped.
type expectation struct {
	// runs is true if the gate waits for pods that run once, which nothing ships.
	runs bool
	// waitsFor are the DaemonSets that the gate waits for.
	waitsFor []string
	// lack are the shipped DaemonSets that do not tolerate the gate's taint: the comment
	// contains the toleration to add.
	lack []string
	// looksUp is true if a DaemonSet looks up names in the cluster's DNS before it is ready: the comment
	// says that the DNS server needs the toleration, too.
	looksUp bool
}

// expectations contains the DaemonSets of every preset, by namespace and name.
var expectations = map[string]expectation{
	"aks-gpu":                       {waitsFor: []string{"gpu-resources/nvidia-device-plugin-daemonset"}, lack: []string{"gpu-resources/nvidia-device-plugin-daemonset"}},
	"amd-gpu":                       {waitsFor: []string{"kube-system/amdgpu-device-plugin-daemonset"}, lack: []string{"kube-system/amdgpu-device-plugin-daemonset", "kube-system/amdgpu-labeller-daemonset"}},
	"calico":                        {waitsFor: []string{"calico-system/calico-node"}},
	"cilium":                        {waitsFor: []string{"kube-system/cilium"}},
	"ebs-csi":                       {waitsFor: []string{"kube-system/ebs-csi-node"}},
	"efs-csi":                       {waitsFor: []string{"kube-system/efs-csi-node"}},
	"eks-gpu":                       {waitsFor: []string{"kube-system/nvidia-device-plugin-daemonset"}, lack: []string{"kube-system/nvidia-device-plugin-daemonset"}},
	"eks-neuron":                    {waitsFor: []string{"kube-system/neuron-device-plugin"}, lack: []string{"kube-system/neuron-device-plugin"}},
	"falco":                         {waitsFor: []string{"falco/falco"}, lack: []string{"falco/falco"}, looksUp: true},
	"gcp-pd-csi":                    {waitsFor: []string{"kube-system/pdcsi-node"}},
	"gke-gpu":                       {},
	"image-warm-up":                 {waitsFor: []string{"kube-system/image-warm-up"}},
	"init-daemonset":                {waitsFor: []string{"kube-system/node-init"}, lack: []string{"kube-system/node-init"}},
	"intel-gpu":                     {waitsFor: []string{"default/intel-gpu-plugin"}, lack: []string{"default/intel-gpu-plugin"}},
	"istio-ambient":                 {waitsFor: []string{"istio-system/istio-cni-node", "istio-system/ztunnel"}, looksUp: true},
	"istio-cni":                     {waitsFor: []string{"istio-system/istio-cni-node"}},
	"kata":                          {waitsFor: []string{"kata-system/kata-deploy"}, lack: []string{"kata-system/kata-deploy"}},
	"kuma":                          {waitsFor: []string{"kube-system/kuma-cni-node"}},
	"linkerd-cni":                   {waitsFor: []string{"linkerd-cni/linkerd-cni"}},
	"multus":                        {waitsFor: []string{"kube-system/kube-multus-ds"}},
	"node-condition":                {},
	"node-local-dns":                {waitsFor: []string{"kube-system/node-local-dns"}},
	"node-problem-detector":         {},
	"node-problem-detector-plugins": {lack: []string{"kube-system/node-problem-detector"}},
	"nvidia-gpu":                    {lack: []string{"gpu-operator/nvidia-device-plugin-daemonset", "kube-system/nvidia-device-plugin-daemonset"}},
	"out-of-service":                {},
	"preflight":                     {runs: true},
	"required-daemonsets":           {waitsFor: []string{"kube-system/required"}, lack: []string{"kube-system/optional", "kube-system/required"}},
	"secrets-store-csi":             {waitsFor: []string{"kube-system/csi-secrets-store-secrets-store-csi-driver"}},
	"spegel":                        {waitsFor: []string{"spegel/spegel"}, looksUp: true},
	"tetragon":                      {waitsFor: []string{"kube-system/tetragon"}},
	"whereabouts":                   {waitsFor: []string{"kube-system/whereabouts"}},
}

// now is the time of the tests' decisions; the node is new.
var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// subject is a preset together with what is shipped for it.
type subject struct {
	*testing.T
	*upstream.Objects
	declared *v1alpha1.NodeGate
	gate     gate.Gate
	// comment is the preset's comment, as one line.
	comment string
	// sets are the shipped DaemonSets, and a copy of each in another namespace.
	sets gate.DaemonSets
}

func newSubject(t *testing.T, preset string) *subject {
	t.Helper()
	objects, err := upstream.For(preset)
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{T: t, Objects: objects}
	text := read(t, preset)
	if s.declared, err = crd.Decode(text); err != nil {
		t.Fatal(err)
	}
	if s.gate, err = signal.Compile(s.declared, v1alpha1.SourceCRD); err != nil {
		t.Fatal(err)
	}
	s.gate.Accepted = true
	comment, _, _ := strings.Cut(string(text), "\napiVersion:")
	s.comment = strings.Join(strings.Fields(strings.ReplaceAll(comment, "#", " ")), " ")
	s.sets.Observed = make(map[string]bool)
	for i := range s.DaemonSets {
		s.observe(s.DaemonSets[i])
		copied := s.DaemonSets[i]
		copied.Namespace = "other-namespace"
		s.observe(copied)
	}
	slices.SortFunc(s.sets.Items, feed.ByNamespaceAndName)
	return s
}

func (s *subject) observe(o appsv1.DaemonSet) {
	o.UID = types.UID(o.Namespace + "/" + o.Name)
	s.sets.Observed[o.Namespace] = true
	s.sets.Items = append(s.sets.Items, feed.NewDaemonSet(&o).DaemonSet)
}

// section returns a section of the preset's comment.
func (s *subject) section(name string) string {
	_, text, _ := strings.Cut(s.comment, " "+name+": ")
	for _, next := range sections[slices.Index(sections, name)+1:] {
		text, _, _ = strings.Cut(text, " "+next+": ")
	}
	return text
}

// after returns the state of the gate on the node, on which it was closed, given the
// DaemonSets that have ready pods there, and what the node reports.
func (s *subject) after(running []string, reports corev1.Node, drivers bool) string {
	s.Helper()
	f := &gate.Facts{DaemonSets: &s.sets, Pods: s.pods(running), CSINode: gate.CSINode{Observed: true}, Zone: gate.Zone{Nodes: 1}}
	f.Transient.GateKeys = map[string]bool{s.gate.Taint.Key: true}
	f.Granted = map[string]bool{s.gate.Name: true}
	f.Node = gate.Node{Name: "n1", UID: "n1", Created: now.Add(-4 * time.Minute), BootID: "boot", Labels: labels.Set{}, Conditions: s.conditions(reports)}
	maps.Copy(f.Node.Labels, s.Selected.Labels)
	maps.Copy(f.Node.Labels, reports.Labels)
	f.Node.Allocatable = make(map[string]resource.Quantity)
	for name, quantity := range reports.Status.Allocatable {
		f.Node.Allocatable[string(name)] = quantity
	}
	if drivers {
		f.CSINode.Owner, f.CSINode.Drivers = f.Node.UID, make(map[string]bool)
		for _, d := range s.Drivers {
			f.CSINode.Drivers[d.Name] = d.Allocatable != nil && d.Allocatable.Count != nil
		}
	}
	if !s.gate.CloseWhen {
		closed := gate.Record{State: v1alpha1.StateClosed, Taint: gate.TaintText(s.gate.Taint), Source: s.gate.Source, Boot: f.Node.BootID}
		f.Node.Records = map[string]string{s.gate.Name: closed.String()}
		f.Node.Taints = []corev1.Taint{s.gate.Taint.Core()}
	}
	return gate.Decide([]gate.Gate{s.gate}, f, now).Verdicts[0].After
}

// conditions returns the node's conditions. Only an unreachable node can be out of service.
func (s *subject) conditions(reports corev1.Node) []gate.Condition {
	ready := corev1.ConditionTrue
	if s.gate.Taint.Key == v1alpha1.TaintOutOfService {
		ready = corev1.ConditionUnknown
	}
	hourAgo := now.Add(-time.Hour)
	all := []gate.Condition{{Type: "Ready", Status: ready, Transition: hourAgo, Heartbeat: hourAgo}}
	for _, c := range reports.Status.Conditions {
		all = append(all, gate.Condition{Type: string(c.Type), Status: c.Status, Transition: hourAgo, Heartbeat: now})
	}
	return all
}

// pods returns the pods on the node by query: a ready one of each running DaemonSet. Next to
// each pod there is one with the same labels that a Deployment owns.
func (s *subject) pods(running []string) map[gate.PodQuery][]gate.Pod {
	s.Helper()
	all := make(map[gate.PodQuery][]gate.Pod)
	for _, query := range s.gate.Needs(&s.sets).Pods {
		selector, err := labels.Parse(query.Selector)
		if err != nil {
			s.Fatal(err)
		}
		all[query] = nil
		for i := range s.sets.Items {
			ds := &s.sets.Items[i]
			if ds.Namespace != query.Namespace || !selector.Matches(ds.PodLabels) {
				continue
			}
			pod := gate.Pod{Name: ds.String() + "-a", UID: "a", Created: now.Add(-3 * time.Minute), Ready: true, ReadySince: now.Add(-time.Minute), Incarnation: 1}
			pod.Owner = ds.UID
			if slices.Contains(running, ds.String()) {
				all[query] = append(all[query], pod)
			}
			if !isOfPods(s.declared) {
				pod.Name, pod.UID, pod.Owner = ds.String()+"-b", "b", "a-replicaset"
				all[query] = append(all[query], pod)
			}
		}
	}
	return all
}

// isOfPods reports whether the gate selects pods by labels, whatever owns them.
func isOfPods(g *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(g.Spec.OpenWhen, func(s v1alpha1.Signal) bool { return s.Pods != nil })
}

// all returns all DaemonSets, including the copies, except the given ones.
func (s *subject) all(except ...string) (names []string) {
	for i := range s.sets.Items {
		if name := s.sets.Items[i].String(); !slices.Contains(except, name) {
			names = append(names, name)
		}
	}
	return names
}

// forEachPreset runs a test for each preset with what is shipped for it. A preset without
// fixture or expectation fails.
func forEachPreset(t *testing.T, test func(*subject, expectation)) {
	if len(expectations) != len(presets.Names()) {
		t.Errorf("%d expectations for %d presets", len(expectations), len(presets.Names()))
	}
	for _, name := range presets.Names() {
		t.Run(name, func(t *testing.T) {
			e, known := expectations[name]
			if !known {
				t.Fatal("expectations does not contain the preset")
			}
			test(newSubject(t, name), e)
		})
	}
}

// The gate selects the nodes on which its DaemonSets run, and no others.
func TestPresetsSelectShippedNodes(t *testing.T) {
	forEachPreset(t, func(s *subject, e expectation) {
		if !s.gate.Selector.Matches(labels.Set(s.Selected.Labels)) {
			s.Errorf("does not select a node with the labels %v", s.Selected.Labels)
		}
		for i := range s.LeftOut {
			if s.gate.Selector.Matches(labels.Set(s.LeftOut[i].Labels)) {
				s.Errorf("selects a node with the labels %v", s.LeftOut[i].Labels)
			}
		}
		controlPlane := labels.Set{"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""}
		for _, ds := range s.awaited(e) {
			if fits, err := ds.Affinity.Match(&s.Selected); err != nil || !fits {
				s.Errorf("waits for %s, which does not run on the selected node (%v)", ds, err)
			}
			taint := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
			if namesDaemonSet(s.declared) && s.gate.Selector.Matches(controlPlane) && !gate.Tolerates(ds.Tolerations, taint) {
				s.Errorf("selects nodes of the control plane, on which %s does not run", ds)
			}
		}
	})
}

// namesDaemonSet reports whether the gate waits for a DaemonSet by its name, on every node
// that it selects.
func namesDaemonSet(g *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(g.Spec.OpenWhen, func(s v1alpha1.Signal) bool { return s.DaemonSet != nil })
}

// awaited returns the DaemonSets that the gate waits for.
func (s *subject) awaited(e expectation) (sets []*gate.DaemonSet) {
	s.Helper()
	for _, name := range e.waitsFor {
		i := slices.IndexFunc(s.sets.Items, func(ds gate.DaemonSet) bool { return ds.String() == name })
		if i < 0 {
			s.Fatalf("DaemonSet %s is not shipped", name)
		}
		sets = append(sets, &s.sets.Items[i])
	}
	return sets
}

// The gate waits for exactly the DaemonSets in the table: it opens when they are ready and
// the node reports what they register, and stays closed while one of these is missing, even
// if everything else that is shipped runs, also in other namespaces.
func TestPresetsWaitForShippedDaemons(t *testing.T) {
	forEachPreset(t, func(s *subject, e expectation) {
		if s.gate.CloseWhen {
			s.closesOnConditions()
			return
		}
		if e.runs {
			if got := s.after(s.all(), s.Ready, true); got != v1alpha1.StateClosed {
				s.Errorf("is %s although no pod has run", got)
			}
			return
		}
		if got := s.after(e.waitsFor, s.Ready, true); got != v1alpha1.StateOpen {
			s.Errorf("is %s although %v are ready", got, e.waitsFor)
		}
		for _, missing := range e.waitsFor {
			if got := s.after(s.all(missing), s.Ready, true); got != v1alpha1.StateClosed {
				s.Errorf("is %s although %s is missing", got, missing)
			}
		}
		if reports := s.Ready.Labels != nil || s.Ready.Status.Allocatable != nil || s.Ready.Status.Conditions != nil; reports {
			if got := s.after(s.all(), corev1.Node{}, true); got != v1alpha1.StateClosed {
				s.Errorf("is %s although the node does not report anything", got)
			}
		}
		if len(s.Drivers) > 0 && s.after(s.all(), s.Ready, false) != v1alpha1.StateClosed {
			s.Error("is open although the driver is not registered")
		}
	})
}

// closesOnConditions verifies that each shipped condition closes the gate, and no other.
func (s *subject) closesOnConditions() {
	s.Helper()
	if got := s.after(nil, corev1.Node{}, false); got == v1alpha1.StateClosed {
		s.Error("is closed without a condition")
	}
	if len(s.Ready.Status.Conditions) == 0 || len(s.Other.Status.Conditions) == 0 {
		s.Error("the fixture has no conditions")
	}
	for closes, conditions := range map[bool][]corev1.NodeCondition{true: s.Ready.Status.Conditions, false: s.Other.Status.Conditions} {
		for _, c := range conditions {
			var reports corev1.Node
			reports.Status.Conditions = []corev1.NodeCondition{c}
			if got := s.after(nil, reports, false); (got == v1alpha1.StateClosed) != closes {
				s.Errorf("with %s=%s, the state is %q", c.Type, c.Status, got)
			}
		}
	}
}

// tolerationText matches a toleration in a preset's comment.
var tolerationText = regexp.MustCompile(`\{key: (\S+), operator: Exists\}`)

// What is shipped tolerates the gate's taint, or the comment says what to add. With the
// addition, it tolerates the taint.
func TestPresetsNameMissingTolerations(t *testing.T) {
	forEachPreset(t, func(s *subject, e expectation) {
		text := s.section("Toleration")
		var lack []string
		for i := range s.sets.Items {
			ds := &s.sets.Items[i]
			if ds.Namespace == "other-namespace" {
				continue
			}
			taint := s.gate.Taint.Core()
			if gate.Tolerates(ds.Tolerations, taint) {
				continue
			}
			lack = append(lack, ds.String())
			added := tolerationText.FindStringSubmatch(text)
			if added == nil {
				s.Errorf("%s does not tolerate the gate, but the comment has no toleration to add", ds)
			} else if all := append(slices.Clone(ds.Tolerations), corev1.Toleration{Key: added[1], Operator: corev1.TolerationOpExists}); !gate.Tolerates(all, taint) {
				s.Errorf("with the toleration of the comment, %s does not tolerate the gate either", ds)
			}
		}
		if names := strings.Contains(text, "kube-system/coredns"); names != e.looksUp {
			s.Errorf("the comment names the DNS server: %t, want %t", names, e.looksUp)
		}
		if !slices.Equal(lack, e.lack) {
			s.Errorf("%v do not tolerate the gate; the table has %v", lack, e.lack)
		}
		if len(lack) == 0 && len(s.DaemonSets) > 0 && !strings.Contains(text, "tolerates") && !strings.Contains(text, "tolerate ") && tolerationText.FindString(text) == "" {
			s.Errorf("the comment does not say that the DaemonSets tolerate the gate: %s", text)
		}
	})
}

// A pod without a readiness probe is ready as soon as it runs. The comment says so, and the
// gate waits for something else as well.
func TestPresetsNameMissingProbes(t *testing.T) {
	forEachPreset(t, func(s *subject, e expectation) {
		for _, ds := range s.awaited(e) {
			if says := strings.Contains(s.section("Waits for"), "no readiness probe"); says != ds.Unprobed && s.hasVersion() {
				s.Errorf("%s has no readiness probe: %t; the comment says so: %t", ds, ds.Unprobed, says)
			}
		}
	})
}

var version = regexp.MustCompile(` at [0-9a-f]{7,12}\b`)

// hasVersion reports whether the source is a version of another project. The names of other
// presets are nodegate's own, or conventions.
func (s *subject) hasVersion() bool { return version.MatchString(s.Source) }

// The fixture and the comment have the same source, with a version.
func TestPresetsNameTheirSource(t *testing.T) {
	forEachPreset(t, func(s *subject, _ expectation) {
		if source := s.section("Source"); source != s.Source {
			s.Errorf("the comment has the source %q, the fixture %q", source, s.Source)
		}
		if s.hasVersion() == strings.HasPrefix(s.Source, "the names are ") {
			s.Errorf("the source has no version: %s", s.Source)
		}
	})
}
