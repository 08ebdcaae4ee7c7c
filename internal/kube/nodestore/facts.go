// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
func (s *Store) Convert(o *corev1.Node) *gate.Node {
	n := s.describe(o)
	n.Labels, n.Taints = s.Texts.Labels(n.Labels, n.Name), s.Texts.Taints(n.Taints)
	return n
}

// Pack returns the packed facts about a Node.
func (s *Store) Pack(o *corev1.Node) *packed.Node {
	n := s.describe(o)
	n.Name = s.NameOf(o.Name)
	s.mu.RLock()
	known := s.byName[o.Name]
	s.mu.RUnlock()
	return s.Packer.Node(n, known)
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
func (s *Store) describe(o *corev1.Node) *gate.Node {
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
		if needed[string(name)] && expression.CheckQuantity(quantity) == nil {
			kept = with(kept, string(name), quantity)
		}
	}
	return kept
}

// info returns the needed fields of nodeInfo.
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

// with sets a key of a map, which is created if it is nil, and returns the map.
func with[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = make(map[string]V, 1)
	}
	m[key] = value
	return m
}
