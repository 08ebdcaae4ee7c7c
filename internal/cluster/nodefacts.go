// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// shutdownMessage is in the message of a Ready condition that is False because
// the kubelet's graceful node shutdown has begun (kubelet/nodeshutdown). The
// condition's reason is KubeletNotReady as for anything else.
const shutdownMessage = "node is shutting down"

// announcesShutdown tells whether a condition says that the node is shutting
// down: the kubelet by Ready's message, or anybody by the lifecycle condition of
// KEP-5683. That one is taken as it stands: who sets it clears it. The other
// lifecycle conditions announce none: daemons outlive a drain, and maintenance
// may be anything.
func announcesShutdown(c *corev1.NodeCondition) bool {
	switch c.Type {
	case corev1.NodeReady:
		return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, shutdownMessage)
	case corev1.NodeGracefulNodeShutdownInProgress:
		return c.Status == corev1.ConditionTrue
	}
	return false
}

// convert makes a Node into facts that stay in memory as they are.
func (s *nodeStore) convert(o *corev1.Node) *gate.Node {
	n := s.describe(o)
	n.Labels, n.Taints = s.intern.labels(n.Labels, n.Name), s.intern.taints(n.Taints)
	return n
}

// pack makes a Node into facts to be kept.
func (s *nodeStore) pack(o *corev1.Node) *packed.Node {
	n := s.describe(o)
	n.Name = s.nameOf(o.Name)
	s.mu.RLock()
	known := s.byName[o.Name]
	s.mu.RUnlock()
	return s.packer.Node(n, known)
}

// describe makes a Node into facts, which share its memory.
func (s *nodeStore) describe(o *corev1.Node) *gate.Node {
	s.mu.RLock()
	needed, resources, infos := s.annotations, s.resources, s.infos
	s.mu.RUnlock()
	n := &gate.Node{
		Name:            o.Name,
		UID:             o.UID,
		ResourceVersion: o.ResourceVersion,
		Created:         instant(o.CreationTimestamp),
		BootID:          o.Status.NodeInfo.BootID,
		Labels:          o.Labels,
		HasAnnotations:  len(o.Annotations) > 0,
		Taints:          o.Spec.Taints,
	}
	for key, value := range o.Annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			n.Records = with(n.Records, name, value)
		}
		if name, ok := strings.CutPrefix(key, v1alpha1.OverrideAnnotationPrefix); ok {
			n.Overrides = with(n.Overrides, name, value)
		}
		if needed[key] {
			n.Annotations = with(n.Annotations, key, value)
		}
	}
	n.Allocatable = allocatable(o.Status.Allocatable, resources)
	n.Info = info(&o.Status.NodeInfo, infos)
	if len(o.Status.Conditions) > 0 {
		n.Conditions = make([]gate.Condition, 0, len(o.Status.Conditions))
	}
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		n.Conditions = append(n.Conditions, gate.Condition{
			Type:       string(c.Type),
			Status:     c.Status,
			Heartbeat:  instant(c.LastHeartbeatTime),
			Transition: instant(c.LastTransitionTime),
		})
		n.ShuttingDown = n.ShuttingDown || announcesShutdown(c)
	}
	return n
}

// allocatable keeps those resources that are needed.
func allocatable(all corev1.ResourceList, needed map[string]bool) map[string]resource.Quantity {
	var kept map[string]resource.Quantity
	for name, quantity := range all {
		if !needed[string(name)] {
			continue
		}
		if kept == nil {
			kept = make(map[string]resource.Quantity, 1)
		}
		kept[string(name)] = quantity
	}
	return kept
}

// info keeps those fields of nodeInfo that are needed.
func info(all *corev1.NodeSystemInfo, needed map[string]bool) map[string]string {
	var kept map[string]string
	for name := range needed {
		if value := infoField(all, name); value != "" {
			kept = with(kept, name, value)
		}
	}
	return kept
}

// infoField returns a field of nodeInfo by its name in the API.
func infoField(all *corev1.NodeSystemInfo, name string) string {
	switch name {
	case "architecture":
		return all.Architecture
	case "bootID":
		return all.BootID
	case "containerRuntimeVersion":
		return all.ContainerRuntimeVersion
	case "kernelVersion":
		return all.KernelVersion
	case "kubeletVersion":
		return all.KubeletVersion
	case "machineID":
		return all.MachineID
	case "operatingSystem":
		return all.OperatingSystem
	case "osImage":
		return all.OSImage
	case "systemUUID":
		return all.SystemUUID
	}
	return ""
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string, 1)
	}
	m[key] = value
	return m
}

// sameFacts tells whether two states of a node differ in nothing that a
// decision could rest on. Heartbeats are for sameHeartbeats.
func sameFacts(a, b *gate.Node) bool {
	return sameForAll(a, b) &&
		maps.Equal(a.Annotations, b.Annotations) &&
		maps.EqualFunc(a.Allocatable, b.Allocatable, resource.Quantity.Equal) &&
		maps.Equal(a.Info, b.Info) &&
		maps.Equal(a.Records, b.Records) &&
		slices.EqualFunc(a.Taints, b.Taints, sameTaint) &&
		slices.EqualFunc(a.Conditions, b.Conditions, sameCondition)
}

// sameHeartbeats tells the same of the heartbeats of their conditions, which few
// decisions rest on.
func sameHeartbeats(a, b *gate.Node) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(a, b gate.Condition) bool { return a.Heartbeat.Equal(b.Heartbeat) })
}

func sameTaint(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// instant returns a time of the API. All are UTC, so that equal times are
// equal as values.
func instant(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func internUID(in *interner, uid types.UID) types.UID { return types.UID(in.text(string(uid))) }

// interner lets equal texts share their memory. It forgets everything when it
// has grown large, rather than remember the labels of nodes of long ago; texts
// that are in use stay valid. (Package unique would forget more cleverly, but
// forgets at once what nobody holds a handle of, and labels.Set cannot.)
type interner struct {
	mu    sync.Mutex
	texts map[string]string
}

// internMax is how many texts are remembered.
const internMax = 1 << 16

func newInterner() *interner { return &interner{texts: make(map[string]string)} }

func (in *interner) text(s string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.locked(s)
}

func (in *interner) locked(s string) string {
	if known, ok := in.texts[s]; ok {
		return known
	}
	if len(in.texts) >= internMax {
		clear(in.texts)
	}
	in.texts[s] = s
	return s
}

// labels interns a node's labels. A value that is the node's own name, as its
// hostname often is, is nobody else's.
func (in *interner) labels(set map[string]string, name string) labels.Set {
	if len(set) == 0 {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make(labels.Set, len(set))
	for key, value := range set {
		if value == name {
			out[in.locked(key)] = name
			continue
		}
		out[in.locked(key)] = in.locked(value)
	}
	return out
}

func (in *interner) taints(taints []corev1.Taint) []corev1.Taint {
	if len(taints) == 0 {
		return nil
	}
	out := make([]corev1.Taint, len(taints))
	for i, t := range taints {
		t.Key, t.Value, t.Effect = in.text(t.Key), in.text(t.Value), corev1.TaintEffect(in.text(string(t.Effect)))
		out[i] = t
	}
	return out
}
