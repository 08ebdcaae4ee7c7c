// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// A removal is a write that removed the gate's taint from a node.
type removal struct {
	node, by string
	// early is why the agent was not ready, or "".
	early string
	// reverted is true if the gate was open: the taint was the operator's. nodegate may do this
	// before it has observed that the agent is no longer ready, and then closes the gate.
	reverted bool
}

// ciliumHistory is what happened to the gate's nodes.
type ciliumHistory struct {
	*revisions.History
	removals []removal
	// additions are how often each user added the taint to a node.
	additions map[string]int
	// conditions are the users that changed a node's condition NetworkUnavailable.
	conditions map[string]bool
}

// history reads what happened to the gate's nodes since a position. It verifies that each node was
// created with the taint.
func (s *ciliumSite) history(since recording.Position) *ciliumHistory {
	s.Helper()
	etcd, err := recording.Connect(s.cluster)
	s.must(err)
	defer etcd.Close()
	read, err := recording.Read(context.WithoutCancel(s.Context()), etcd, s.cluster.AuditLog(), since)
	s.must(err)
	h := &ciliumHistory{History: read, additions: make(map[string]int), conditions: make(map[string]bool)}
	for _, versions := range read.Versions(revisions.KindNode) {
		before := (*corev1.Node)(nil)
		for _, v := range versions {
			node, _ := v.Object.(*corev1.Node)
			if node != nil && node.Labels[siteLabel] == s.gate {
				if before == nil && v.Revision > read.From && !hasTaint(node, ciliumKey) {
					s.Errorf("node %s was created without the taint", v.Name)
				}
				h.add(v.Revision, before, node)
			}
			before = node
		}
	}
	return h
}

// add adds a write of a node.
func (h *ciliumHistory) add(revision int64, before, after *corev1.Node) {
	if before == nil {
		return
	}
	write, _ := h.Write(revision)
	if !equality.Semantic.DeepEqual(networkUnavailable(before), networkUnavailable(after)) {
		h.conditions[write.User] = true
	}
	if hasTaint(before, ciliumKey) && !hasTaint(after, ciliumKey) {
		r := removal{node: after.Name, by: write.User, early: h.notReady(revision, after)}
		r.reverted = r.by == shared.installation.Username() && strings.Contains(before.Annotations[v1alpha1.RecordAnnotationPrefix+after.Labels[siteLabel]], `"Open"`)
		h.removals = append(h.removals, r)
	}
	if !hasTaint(before, ciliumKey) && hasTaint(after, ciliumKey) {
		h.additions[write.User+" on "+after.Name]++
	}
}

// notReady returns why the agent was not ready on a node at a revision, or "".
func (h *ciliumHistory) notReady(revision int64, node *corev1.Node) string {
	why := "it has no pod"
	for _, versions := range h.Versions(revisions.KindPod) {
		pod := (*corev1.Pod)(nil)
		for _, v := range versions {
			if v.Revision <= revision {
				pod, _ = v.Object.(*corev1.Pod)
			}
		}
		if pod == nil || pod.Labels["k8s-app"] != "cilium" || pod.Spec.NodeName != node.Name {
			continue
		}
		if why = notRunning(pod, node.Status.NodeInfo.BootID); why == "" {
			return ""
		}
	}
	return why
}

// notRunning returns why an agent's pod does not show that the agent is ready in a boot, or "".
func notRunning(pod *corev1.Pod, boot string) string {
	containers := pod.Status.ContainerStatuses
	switch {
	case pod.DeletionTimestamp != nil:
		return "its pod is terminating"
	case len(containers) == 0 || !containers[0].Ready:
		return "its pod is not ready"
	case !strings.HasPrefix(containers[0].ContainerID, containerOf(boot)):
		return "its pod is from before the reboot"
	}
	return ""
}

// early returns how often each user removed the taint of a closed gate from a node although the
// agent was not ready, by user, node and reason.
func (h *ciliumHistory) early() map[string]int {
	counts := make(map[string]int)
	for _, r := range h.removals {
		if r.early != "" && !r.reverted {
			counts[fmt.Sprintf("%s on %s: %s", r.by, r.node, r.early)]++
		}
	}
	return counts
}

// reverted returns how often nodegate removed the operator's taint from a node with an open gate.
func (h *ciliumHistory) reverted() (n int) {
	for _, r := range h.removals {
		if r.reverted {
			n++
		}
	}
	return n
}

// by returns how often a user removed the taint.
func (h *ciliumHistory) by(user string) (n int) {
	for _, r := range h.removals {
		if r.by == user {
			n++
		}
	}
	return n
}
