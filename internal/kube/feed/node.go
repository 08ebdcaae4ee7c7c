// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// shutdownMessage is in the message of a Ready condition that is False because the
// kubelet's graceful node shutdown has begun (kubelet/nodeshutdown). The reason of the
// condition is KubeletNotReady, as for other causes.
const shutdownMessage = "node is shutting down"

// announcesShutdown reports whether a condition announces a shutdown of the node. The
// kubelet announces it by the message of Ready, and any writer by the lifecycle condition
// of KEP-5683, which is accepted as it is: its writer is responsible for clearing it. Only
// nodegate's agent says which boot it announces the end of.
// Other lifecycle conditions do not announce a shutdown: daemons survive a drain, and
// maintenance may mean anything.
func announcesShutdown(c *corev1.NodeCondition, boot string) bool {
	switch c.Type {
	case corev1.NodeReady:
		return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, shutdownMessage)
	case corev1.NodeGracefulNodeShutdownInProgress:
		ending, ofBoot := strings.CutPrefix(c.Message, v1alpha1.ShutdownMessagePrefix)
		return c.Status == corev1.ConditionTrue && (!ofBoot || ending == boot)
	}
	return false
}

// Convert returns the facts about a Node, for keeping in memory without packing.
func (s *Nodes) Convert(o *corev1.Node) *gate.Node {
	n := s.describe(o)
	n.Labels, n.Taints = s.intern.labels(n.Labels, n.Name), s.intern.taints(n.Taints)
	return n
}

// pack returns the packed facts about a Node.
func (s *Nodes) pack(o *corev1.Node) *packed.Node {
	n := s.describe(o)
	n.Name = s.nameOf(o.Name)
	s.mu.RLock()
	known := s.byName[o.Name]
	s.mu.RUnlock()
	return s.packer.Node(n, known)
}

// bootID returns the boot ID that a kubelet has reported, as it is read from a record: JSON replaces
// each byte that is not part of a UTF-8 character. In that case, it also returns the ID as reported.
// Kubernetes does not validate it.
func bootID(info *corev1.NodeSystemInfo) (id, raw string) {
	if utf8.ValidString(info.BootID) {
		return info.BootID, ""
	}
	return string([]rune(info.BootID)), info.BootID
}

// describe returns the facts about a Node. They share memory with o.
func (s *Nodes) describe(o *corev1.Node) *gate.Node {
	s.mu.RLock()
	needed, resources, infos := s.annotations, s.resources, s.infos
	s.mu.RUnlock()
	n := &gate.Node{
		Name:            o.Name,
		UID:             o.UID,
		ResourceVersion: o.ResourceVersion,
		Created:         clients.Instant(o.CreationTimestamp),
		Labels:          o.Labels,
		HasAnnotations:  len(o.Annotations) > 0,
		Taints:          o.Spec.Taints,
	}
	n.BootID, n.RawBootID = bootID(&o.Status.NodeInfo)
	for key, value := range o.Annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			n.Records = With(n.Records, name, value)
		}
		if name, ok := strings.CutPrefix(key, v1alpha1.OverrideAnnotationPrefix); ok {
			n.Overrides = With(n.Overrides, name, value)
		}
		if needed[key] {
			n.Annotations = With(n.Annotations, key, value)
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
			Heartbeat:  clients.Instant(c.LastHeartbeatTime),
			Transition: clients.Instant(c.LastTransitionTime),
		})
		n.ShuttingDown = n.ShuttingDown || announcesShutdown(c, n.BootID)
	}
	return n
}

// allocatable returns the needed resources. It drops quantities that are expensive to
// compare, because the facts of all nodes are locked while those of one node are compared
// or packed.
func allocatable(all corev1.ResourceList, needed map[string]bool) map[string]resource.Quantity {
	var kept map[string]resource.Quantity
	for name, quantity := range all {
		if !needed[string(name)] || expression.CheckQuantity(quantity) != nil {
			continue
		}
		if kept == nil {
			kept = make(map[string]resource.Quantity, 1)
		}
		kept[string(name)] = quantity
	}
	return kept
}

// info returns the needed fields of nodeInfo.
func info(all *corev1.NodeSystemInfo, needed map[string]bool) map[string]string {
	var kept map[string]string
	for name := range needed {
		if value := infoField(all, name); value != "" {
			kept = With(kept, name, value)
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

// With sets a key of a map, which is created if it is nil, and returns the map.
func With(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string, 1)
	}
	m[key] = value
	return m
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func internUID(in *interner, uid types.UID) types.UID { return types.UID(in.text(string(uid))) }

// interner lets equal texts share memory. When it has grown large, it drops all entries
// rather than keep labels of deleted nodes; texts that are in use stay valid. (Package
// unique would drop entries more selectively, but only keeps texts whose handles are
// referenced, and labels.Set cannot hold handles.)
type interner struct {
	mu    sync.Mutex
	texts map[string]string
	bytes int // in the texts
}

// internMax is the maximum number of entries, and internBytes that of bytes in them.
const (
	internMax   = 1 << 16
	internBytes = 16 << 20
)

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
	if in.bytes += len(s); len(in.texts) >= internMax || in.bytes > internBytes {
		clear(in.texts)
		in.bytes = len(s)
	}
	in.texts[s] = s
	return s
}

// labels interns a node's labels. A value that equals the node's name, such as its
// hostname, is not interned because no other node has it.
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
