// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// fleetGates are the gates of generated fleets.
const fleetGates = `
- metadata: {name: cilium}
  spec:
    taint: {key: node.cilium.io/agent-not-ready, effect: NoSchedule}
    deadline: {readySeconds: 900}
    openWhen: [{name: agent, daemonSet: {namespace: kube-system, name: cilium}}]
- metadata: {name: gpu}
  spec:
    nodeSelector: {matchLabels: {pool: gpu-a100}}
    taint: {key: example.com/gpu-not-ready, effect: NoSchedule}
    openWhen:
    - {name: driver, daemonSet: {namespace: gpu-operator, name: driver}}
    - {name: healthy, condition: {type: GpuHealthy, status: "True"}}
- metadata: {name: storage}
  spec:
    taint: {key: ebs.csi.aws.com/agent-not-ready, effect: NoExecute}
    openWhen:
    - {name: csi-node, daemonSet: {namespace: kube-system, name: ebs-csi-node}}
    - {name: image-cache, condition: {type: ImagesWarm, status: "True"}}
- metadata: {name: repair}
  spec:
    taint: {key: example.com/repair, effect: NoSchedule}
    closeWhen: [{name: disk, condition: {type: DiskBroken, status: "True"}}]
`

// fleet generates nodes.
type fleet struct {
	*rand.Rand
	gates      *gateset.Set
	daemonSets *gate.DaemonSets
	// hostile is appended to names, to test that they do no harm in a page.
	hostile string
}

func newFleet(seed uint64) *fleet {
	f := &fleet{Rand: rand.New(rand.NewPCG(seed, seed))}
	var declared []v1alpha1.NodeGate
	if err := yaml.Unmarshal([]byte(fleetGates), &declared); err != nil {
		panic(err)
	}
	for i := range declared {
		declared[i].CreationTimestamp.Time = now.Add(-1000 * time.Hour)
	}
	f.gates = gateset.Of(declared, gate.KeyPolicy{}, gateset.IgnoreStatus)
	f.daemonSets = &gate.DaemonSets{Observed: map[string]bool{"kube-system": true, "gpu-operator": true}}
	for _, ds := range [][2]string{{"gpu-operator", "driver"}, {"kube-system", "cilium"}, {"kube-system", "ebs-csi-node"}} {
		f.daemonSets.Items = append(f.daemonSets.Items, gate.DaemonSet{
			Namespace: ds[0], Name: ds[1], UID: types.UID(ds[1]), Pods: gate.PodQuery{Namespace: ds[0], Selector: "app=" + ds[1]},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		})
	}
	return f
}

var (
	pools = []string{"general", "general", "general", "spot-xlarge", "gpu-a100"}
	zones = []string{"eu-central-1a", "eu-central-1b", "eu-central-1c"}
)

// some returns a random duration near the given one, and sometimes a far longer one.
func (f *fleet) some(about time.Duration) time.Duration {
	d := time.Duration(float64(about) * (0.5 + f.ExpFloat64()*0.5))
	if f.IntN(150) == 0 {
		d *= 12
	}
	return d.Truncate(time.Second)
}

// node generates a node. One node in stuck is held.
func (f *fleet) node(i, stuck int) (gate.Facts, *gate.PodList) {
	pool := pools[f.IntN(len(pools))]
	slow := time.Duration(1)
	if pool == "gpu-a100" {
		slow = 3
	}
	created := now.Add(-time.Duration(f.IntN(200*3600)+3600) * time.Second)
	n := gate.Node{
		Name: fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal%s", i/62500, i/250%250, i%250, f.hostile), UID: types.UID(fmt.Sprint("n", i)), BootID: "b", Created: created,
		Labels:  map[string]string{"pool": pool, "karpenter.sh/nodepool": pool + f.hostile, corev1.LabelTopologyZone: zones[f.IntN(len(zones))]},
		Records: make(map[string]string),
	}
	held := f.IntN(stuck) == 0
	if held {
		n.Created = now.Add(-f.some(20 * time.Minute)).Truncate(time.Second)
	}
	after := func(from time.Time, d time.Duration) time.Time { return from.Add(f.some(d)) }
	ready := after(n.Created, 35*time.Second)
	n.Conditions = []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue, Transition: ready}}
	facts := gate.Facts{DaemonSets: f.daemonSets, Pods: make(map[gate.PodQuery][]gate.Pod)}
	all := &gate.PodList{At: now}
	daemon := func(ds int, start, settle time.Duration, up bool) time.Time {
		set := &f.daemonSets.Items[ds]
		name := fmt.Sprintf("%s-%05x%s", set.Name, f.IntN(1<<20), f.hostile)
		p := gate.Pod{UID: types.UID(name), Name: set.Namespace + "/" + name, Owner: set.UID, Created: n.Created.Add(time.Second), Ready: up}
		started := after(p.Created, start)
		p.ReadySince = after(started, settle)
		facts.Pods[set.Pods] = append(facts.Pods[set.Pods], p)
		all.Pods = append(all.Pods, gate.BoundPod{
			Namespace: set.Namespace, Name: name, UID: p.UID, Daemon: true, Owned: true, Created: p.Created, Bound: p.Created,
			Starts: []gate.Start{{At: started, Running: true}},
		})
		return p.ReadySince
	}
	cilium := daemon(1, 25*time.Second, 20*time.Second, !held || i%3 > 0)
	csi := daemon(2, 15*time.Second, 8*time.Second, true)
	warm := after(ready, 50*time.Second*slow)
	n.Conditions = append(n.Conditions, gate.Condition{Type: "ImagesWarm", Status: status(!held), Transition: warm})
	opened := func(name, taint string, at time.Time, holds bool) time.Time {
		r := gate.Record{State: v1alpha1.StateOpen, Since: at.Add(time.Duration(f.IntN(900)) * time.Millisecond), Reason: v1alpha1.ReasonSignalsHold, Taint: taint, Source: "crd"}
		if !holds {
			r = gate.Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: "b", Taint: taint, Source: "crd"}
			n.Taints = append(n.Taints, r.RecordedTaint().Core())
		}
		n.Records[name] = r.String()
		return r.Since
	}
	last := later(
		opened("cilium", "node.cilium.io/agent-not-ready:NoSchedule", cilium, !held || i%3 > 0),
		opened("storage", "ebs.csi.aws.com/agent-not-ready:NoExecute", later(csi, warm), !held),
	)
	if pool == "gpu-a100" {
		driver, healthy := daemon(0, 2*time.Minute, 40*time.Second, true), after(ready, 90*time.Second)
		n.Conditions = append(n.Conditions, gate.Condition{Type: "GpuHealthy", Status: corev1.ConditionTrue, Transition: healthy})
		last = later(last, opened("gpu", "example.com/gpu-not-ready:NoSchedule", later(driver, healthy), true))
	}
	if !held {
		bound := last.Add(f.some(6 * time.Second)).Truncate(time.Second)
		all.Pods = append(all.Pods, gate.BoundPod{
			Namespace: "shop", Name: fmt.Sprintf("checkout-%x%s", f.IntN(1<<30), f.hostile), UID: types.UID(fmt.Sprint("w", i)), Owned: true,
			Created: bound.Add(-f.some(10 * time.Second)), Bound: bound, Starts: []gate.Start{{At: bound.Add(3 * time.Second), Running: true}},
		})
	}
	facts.Node = n
	return facts, all
}

func status(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// facts returns the facts about this number of nodes. One in stuck is held. It
// decides and traces as the verb does.
func (f *fleet) facts(size, stuck int) *report.Facts {
	out := &report.Facts{Cluster: "production-eu-central-1" + f.hostile, Time: now, Gates: f.gates, PodsRead: true, Within: 24 * time.Hour}
	all, pods := make([]gate.Facts, size), make(map[string]*gate.PodList, size)
	for i := range all {
		facts, list := f.node(i, stuck)
		all[i], pods[facts.Node.Name] = facts, list
	}
	out.Trace(all, pods, "")
	return out
}
