// SPDX-License-Identifier: Apache-2.0

// Package writers describes well-known programs that add or remove taints by themselves. It is
// for reports about taints that have another writer than nodegate.
package writers

// A Writer is a program that adds or removes a taint.
type Writer struct {
	// Key is the key of the taint, unless the program is configured with another one.
	Key string
	// Program is the name of the Deployment or DaemonSet.
	Program string
	// How describes what the program does with the taint, and how to disable this.
	How string
}

// Programs in All whose configuration determines whether they write the taint.
const (
	CiliumOperator    = "cilium-operator"
	Istiod            = "istiod"
	Kuma              = "kuma-control-plane"
	NodeTaintsHandler = "nodetaintshandler"
	PDController      = "csi-gce-pd-controller"
)

// All lists the known writers.
var All = []Writer{
	{"node.cilium.io/agent-not-ready", CiliumOperator,
		"it removes the taint when the agent is ready, or adds it when it is not; disable this with the Helm values operator.removeNodeTaints=false and extraConfig.remove-cilium-node-taints=\"false\", and restart it"},
	{"cni.istio.io/not-ready", Istiod,
		"its untaint controller removes the taint; disable this with taint.enabled=false in the istiod chart"},
	{"NodeReadiness", Kuma,
		"it removes the taint when the CNI agent is ready, or adds it when it is not; disable this with the Helm value cni.taintController.enabled=false"},
	{"startup.k8s.io/initializing", NodeTaintsHandler,
		"it adds and removes the taint; delete its MutatingWebhookConfiguration node-startup-taint, then its Deployment"},
	{"ebs.csi.aws.com/agent-not-ready", "ebs-csi-node",
		"it removes the taint from its own node for ten minutes after it starts; disable this with the Helm value node.serviceAccount.disableMutation=true"},
	{"efs.csi.aws.com/agent-not-ready", "efs-csi-node",
		"it removes the taint from its own node when it starts; disable this with the Helm value node.serviceAccount.disableMutation=true"},
	{"pd.csi.storage.gke.io/not-ready", PDController,
		"it removes the taint when the CSINode lists the driver; remove the container taint-controller from the Deployment, and the driver's webhook"},
}

// Of returns the known writers of a taint key.
func Of(key string) (known []Writer) {
	for _, w := range All {
		if w.Key == key {
			known = append(known, w)
		}
	}
	return known
}
