// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Names that are part of nodegate's external contract. Each is defined only
// here, except that the node agent has copies of those that it uses
// (internal/hold/agent/names.go), because this package would take too much of
// its memory. A test compares them.
const (
	// RecordAnnotationPrefix is the prefix of the node annotation that holds a
	// gate's record: gate.nodegate.dev/<name of the gate>.
	RecordAnnotationPrefix = "gate.nodegate.dev/"

	// OverrideAnnotationPrefix is the prefix of the node annotation with which a
	// user overrides the state of a gate on the node for a limited time:
	// override.nodegate.dev/<name of the gate>.
	OverrideAnnotationPrefix = "override.nodegate.dev/"

	// DeadlineConditionPrefix is the prefix of the type of the node condition that
	// reports that a gate's deadline has passed:
	// deadline.nodegate.dev/<name of the gate>.
	DeadlineConditionPrefix = "deadline.nodegate.dev/"

	// DaemonPodLabel is a label of every pod that the DaemonSet controller creates.
	// If the policy nodegate-daemon-pods is installed, no other pod carries it.
	DaemonPodLabel = "pod-template-generation"

	// BootLabel is a label of pods that run once on a node (see CompletedSignal). Its
	// value is the ID of the boot to which the pod belongs: status.nodeInfo.bootID of the
	// Node. Without it, the pod belongs to no boot.
	BootLabel = "nodegate.dev/boot-id"

	// OptOutLabel, with the value OptOutValue, excludes a Node from all gates, as
	// if no gate selected it. NodeRestriction prevents kubelets from setting it.
	OptOutLabel = "node-restriction.kubernetes.io/nodegate-opt-out"
	// PlainOptOutLabel has the same effect as OptOutLabel if the administrator
	// allows it. Every kubelet can set it on its own Node.
	PlainOptOutLabel = "nodegate.dev/opt-out"
	// OptOutValue is the value of OptOutLabel and PlainOptOutLabel.
	OptOutValue = "true"

	// FieldManager is the field manager of nodegate's writes to Nodes.
	FieldManager = "nodegate"

	// OverrideFieldManager is the field manager of manual overrides by 'kubectl gate'. It
	// also removes taints with it.
	OverrideFieldManager = "kubectl-gate"

	// DefaultNamespace is the namespace in which nodegate runs, unless it is
	// installed elsewhere.
	DefaultNamespace = "nodegate-system"

	// LeaseName is the name of the Lease that the active controller holds in
	// nodegate's namespace.
	LeaseName = "nodegate"

	// AppLabel identifies nodegate's workloads by one of the values that follow.
	AppLabel = "app.kubernetes.io/name"
	// AppController is the value of AppLabel of nodegate's Deployment and its pods.
	AppController = "nodegate"
	// AppAgent is the value of AppLabel of the node agent's DaemonSet and its pods. It is
	// also the name of the agent's cluster-wide objects.
	AppAgent = "nodegate-agent"
	// AppImageWarmUp is the value of AppLabel of the DaemonSet image-warm-up and its pods.
	AppImageWarmUp = "nodegate-image-warm-up"

	// TaintOutOfService causes Kubernetes to detach volumes from a node and to
	// delete its pods.
	TaintOutOfService = corev1.TaintNodeOutOfService

	// TaintCloudShutdown is the taint that a cloud controller adds to an
	// unreachable node while the machine is shut down (cloud-provider's
	// TaintNodeShutdown).
	TaintCloudShutdown = "node.cloudprovider.kubernetes.io/shutdown"

	// ShutdownMessagePrefix is the beginning of the message of the condition
	// GracefulNodeShutdownInProgress if nodegate's agent has set it. The ID of the boot that
	// ends follows. The condition announces nothing in other boots.
	ShutdownMessagePrefix = "nodegate-agent: the machine shuts down in boot "

	// CoreTaintPrefix is the prefix of the taint keys that belong to Kubernetes.
	CoreTaintPrefix = "node.kubernetes.io/"
)

// The parameter of the birth policy, from which the policy reads the gates.
const (
	// BirthParameter is the name of the PodTemplate in nodegate's namespace.
	BirthParameter = "nodegate-birth"
	// ParameterLabel is the label of the PodTemplate. Its value is "true".
	ParameterLabel = "nodegate.dev/birth"
	// ParameterSource is the annotation of the PodTemplate that specifies where the
	// gates were declared: SourceCRD or SourceFiles.
	ParameterSource = "nodegate.dev/source"
)

// The tolerations policy, and its parameter, from which it reads which DaemonSets must
// tolerate which taints.
const (
	// TolerationsPolicy is the name of the MutatingAdmissionPolicy and of its binding.
	TolerationsPolicy = "nodegate-tolerations"
	// TolerationsParameter is the name of the PodTemplate in nodegate's namespace.
	TolerationsParameter = "nodegate-tolerations"
	// TolerationsLabel is the label of the PodTemplate. Its value is "true".
	TolerationsLabel = "nodegate.dev/tolerations"
	// TolerateFieldManager is the field manager of 'kubectl gate tolerate', which
	// adds tolerations to DaemonSets by server-side apply.
	TolerateFieldManager = "kubectl-gate-tolerate"
)

// Sources of a gate's declaration, as written to records.
const (
	// SourceCRD means that the gate was declared as a NodeGate object in the API
	// server.
	SourceCRD = "crd"
	// SourceFiles means that the gate was declared in a file of the directory that
	// the controller was configured with.
	SourceFiles = "files"
)

// States of a gate on a node, as written to records.
const (
	// StateClosed means that the taint is on the node.
	StateClosed = "Closed"
	// StateOpen means that the taint is not on the node.
	StateOpen = "Open"
)

// EventReporter is the reporting controller of Events.
const EventReporter = "nodegate.dev/controller"
