// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// defaultTransientPrefixes are, with those of startup taints, prefixes of the keys of
// transient taints: taints that appear and disappear while a node is set up, drained or
// repaired. A daemon that does not tolerate such a taint still belongs on the node; its
// pod is created when the taint is removed.
var defaultTransientPrefixes = []string{
	"node.kubernetes.io/",
	"node.cloudprovider.kubernetes.io/",
	"node.cluster.x-k8s.io/",
	"karpenter.sh/",
	"status-taint.cluster-autoscaler.kubernetes.io/",
	"ToBeDeletedByClusterAutoscaler",
	"DeletionCandidateOfClusterAutoscaler",
}

// startupPrefixes are prefixes of the keys of taints that a node has until it is set up.
var startupPrefixes = []string{
	corev1.TaintNodeNetworkUnavailable,
	"node.cilium.io/",
	"karpenter.sh/unregistered",
	"readiness.k8s.io/",
	"startup.k8s.io/",
	"nidhogg.uswitch.com/",
	"startup-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/",
	"NodeReadiness", // Kuma
}

// startupSuffixes are suffixes that CNI plugins, CSI drivers and others use for such
// keys, for example ebs.csi.aws.com/agent-not-ready, cni.istio.io/not-ready and
// node.kubernetes.io/not-ready.
var startupSuffixes = []string{
	"/agent-not-ready",
	"/not-ready",
	"/uninitialized",
	"/initializing",
}

// setupTaints is read for every decision, so the list is created once.
var setupTaints = v1alpha1.SetupTaintKeys()

// Transient distinguishes transient taints from those that determine which pods belong
// on a node. The zero value covers the well-known keys. A taint for which a record on the
// node accounts is transient, whatever its key is (see Facts.Lasting).
type Transient struct {
	// Prefixes contains prefixes of further transient taint keys.
	Prefixes []string
	// GateKeys contains the taint keys of all gates, except of those that are in dry run or
	// may not use their key.
	GateKeys map[string]bool
}

// Is reports whether taints with this key are transient.
func (t Transient) Is(key string) bool {
	return t.GateKeys[key] || t.foreign(key)
}

// Lasting returns the node's taints that are not transient, as a decision does. A taint for
// which a record accounts is a gate's own, even if no gate that exists has its key: the gate
// has been deleted or edited, or must not act at present. Daemons that do not tolerate it
// start when it is removed, so other gates must wait for them.
func (f *Facts) Lasting() []corev1.Taint {
	if !slices.ContainsFunc(f.Node.Taints, func(t corev1.Taint) bool { return !f.Transient.Is(t.Key) }) {
		return nil // the records make no difference
	}
	d := newDecider(f, f.Node.Created)
	defer d.done()
	d.indexTaints()
	d.readRecords(nil)
	return d.findLasting()
}

// Foreign returns the first taint that is transient, keeps pods off the node, and does not
// belong to a gate, or nil. With such a taint, the node is still being set up, drained or
// repaired.
func (t Transient) Foreign(taints []corev1.Taint) *corev1.Taint {
	i := slices.IndexFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !t.GateKeys[taint.Key] && t.foreign(taint.Key)
	})
	if i < 0 {
		return nil
	}
	return &taints[i]
}

func (t Transient) foreign(key string) bool {
	return IsStartupTaint(key) || hasPrefix(key, defaultTransientPrefixes) || hasPrefix(key, t.Prefixes)
}

// IsStartupTaint reports whether taints with this key are well known to be removed when the node
// has been set up. Unlike other transient taints, they are not those of a node that is drained
// or repaired.
func IsStartupTaint(key string) bool {
	return hasPrefix(key, startupPrefixes) || slices.ContainsFunc(startupSuffixes, func(suffix string) bool {
		return strings.HasSuffix(key, suffix)
	})
}

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

func beingSetUp(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return slices.Contains(setupTaints, taint.Key)
	})
}
