// SPDX-License-Identifier: Apache-2.0

package lint

// Rule is a check.
type Rule struct {
	// ID identifies the rule. It does not change, because programs depend on it.
	ID       string
	Severity Severity
	// Needs are the kinds that must be read for complete findings.
	Needs []Kind
	// Why and Do are those of the rule's findings.
	Why, Do string
	check   func(*checker, *subject) []hit
}

// Rules are all checks. docs/lint.md has a section about each.
var Rules = []Rule{
	{
		ID: "not-accepted", Severity: Error, Needs: []Kind{TaintKeys, ReadinessRules}, check: notAccepted,
		Why: "The gate is not in force: it closes on no more nodes. If its taint is not allowed or its signals are invalid, nodes on which it is closed stay closed. Otherwise, it opens on them when its signals hold.",
		Do:  "Follow the message.",
	},
	{
		ID: "contended", Severity: Error, check: contended,
		Why: "Another writer reverts nodegate's changes of the taint. nodegate repeats them at increasing intervals; in between, the taint is as the other writer left it.",
		Do:  "Disable the other writer (see the gate's condition Contended), or use another key.",
	},
	{
		ID: "gates-contradict", Severity: Error, check: gatesContradict,
		Why: "What each gate writes would make another of the gates revert it. On these nodes, all of them keep their state: they neither open nor close.",
		Do:  "Change the signals of the gates that the message names, so that none of them depends on what another gate writes.",
	},
	{
		ID: "daemonset-missing", Severity: Error, Needs: []Kind{DaemonSets}, check: daemonSetMissing,
		Why: "The signal never holds: new nodes stay closed until the DaemonSet exists.",
		Do:  "Create the DaemonSet, or correct the namespace and the name in the gate.",
	},
	{
		ID: "daemonset-misses-nodes", Severity: Error, Needs: []Kind{DaemonSets, Nodes}, check: daemonSetMissesNodes,
		Why: "On nodes on which the DaemonSet does not run, the signal never holds: new nodes of this kind stay closed.",
		Do:  "Narrow the gate's nodeSelector to the nodes on which the DaemonSet runs, or allow the DaemonSet to run on all of them.",
	},
	{
		ID: "daemon-does-not-tolerate", Severity: Error, Needs: []Kind{DaemonSets}, check: daemonDoesNotTolerate,
		Why: "The gate is deadlocked: it waits for the daemon, and its taint keeps the daemon off the node. With NoExecute, it also evicts a running daemon.",
		Do:  "Add a toleration of the taint (operator Exists, without effect) to the DaemonSet's pod template, or run 'kubectl gate tolerate <namespace>/<daemonset>'. The command requires that the gate is in the cluster: apply a new gate with mode DryRun first.",
	},
	{
		ID: "tolerations-not-added", Severity: Warning, Needs: []Kind{TolerationsPolicy}, check: tolerationsNotAdded,
		Why: "The API server adds no tolerations to the DaemonSets that the gate waits for: one that lacks the toleration deadlocks the gate.",
		Do:  "Apply the manifests of this version (Kubernetes 1.36 and newer, without birth=webhook). On other clusters, remove tolerate from the gate, and run 'kubectl gate tolerate' when a DaemonSet is new.",
	},
	{
		ID: "agent-not-confined", Severity: Warning, Needs: []Kind{AgentRole, AgentPolicy}, check: agentNotConfined,
		Why: "The node agent announces shutdowns, for which it may patch the status of every Node. Without the policy, an attacker with the token of one of its pods can close gates on all nodes, and change everything else in their status.",
		Do:  "Apply the manifests of the agent again, or set agent.announceShutdowns to false.",
	},
	{
		ID: "hold-without-agent", Severity: Warning, Needs: []Kind{AgentRole}, check: holdWithoutAgent,
		Why: "Only the node agent holds pods: after a reboot, pods that are bound to the node start before the gate opens.",
		Do:  "Install the agent (agent.enabled in the chart, or deploy/agent/agent.yaml), and reboot the nodes or restart containerd. If pods need not be held, set bypassedPods to Report and remove holdSeconds.",
	},
	{
		ID: "daemon-without-probe", Severity: Note, Needs: []Kind{DaemonSets}, check: daemonWithoutProbe,
		Why: "The daemon's pods are ready as soon as they run, even if the daemon does not work.",
		Do:  "Add a readinessProbe to the daemon, unless the gate should only wait until the daemon runs.",
	},
	{
		ID: "selects-no-daemonset", Severity: Warning, Needs: []Kind{DaemonSets}, check: selectsNoDaemonSet,
		Why: "A signal that selects no DaemonSets holds on every node: the gate opens immediately.",
		Do:  "Correct the selector or the namespaces, or label the DaemonSets.",
	},
	{
		ID: "gates-deadlock", Severity: Error, Needs: []Kind{DaemonSets}, check: gatesDeadlock,
		Why: "Each gate waits for a daemon that the taint of the other gate keeps off the node: on a new node, neither gate opens.",
		Do:  "Add a toleration of the other gate's taint to one of the two daemons.",
	},
	{
		ID: "operator-does-not-tolerate", Severity: Error, Needs: []Kind{DaemonSets, Deployments, Nodes}, check: operatorDoesNotTolerate,
		Why: "The daemon does not become ready without the Deployment, and the gate selects every node on which the Deployment could run: if all of these are new at the same time, as in a new cluster or after an outage, the gate opens on none of them.",
		Do:  "Add a toleration of the gate's taint to the Deployment, or provide a node for it that the gate does not select.",
	},
	{
		ID: "sibling-does-not-tolerate", Severity: Warning, Needs: []Kind{DaemonSets, Deployments, Nodes}, check: siblingDoesNotTolerate,
		Why: "The Deployment belongs to the same application as the daemon (app.kubernetes.io/part-of, in the same namespace). If the daemon needs the Deployment to become ready, the gate opens on no node when all nodes are new at the same time.",
		Do:  "If the daemon needs it, add a toleration of the gate's taint to the Deployment. Otherwise, nothing needs to be done.",
	},
	{
		ID: "nodegate-does-not-tolerate", Severity: Error, Needs: []Kind{Deployments, Nodes}, check: nodegateDoesNotTolerate,
		Why: "The gate selects every node on which nodegate could run: if all of these are closed, nodegate itself cannot start, and no gate opens.",
		Do:  "Add the key to allowedTaintKeys of the nodegate installation, which adds the toleration, or add the toleration to its Deployment.",
	},
	{
		ID: "karpenter-startup-taint-missing", Severity: Error, Needs: []Kind{NodePools}, check: karpenterStartupTaintMissing,
		Why: "Karpenter assumes that the taint is permanent: pending pods that do not tolerate it do not fit on the node, so Karpenter launches another node for them.",
		Do:  "Add the taint to spec.template.spec.startupTaints of the NodePool.",
	},
	{
		ID: "karpenter-version-unknown", Severity: Warning, Needs: []Kind{NodePools, Deployments}, check: karpenterVersionUnknown,
		Why: "Karpenter before 1.13 does not recognize the prefix readiness.k8s.io/: it assumes that the taint is permanent, and launches another node for the pending pods.",
		Do:  "Check that Karpenter is version 1.13 or newer (or based on it, if it is not Karpenter for AWS). Otherwise, add the taint to spec.template.spec.startupTaints of the NodePool.",
	},
	{
		ID: "karpenter-permanent-taint", Severity: Error, Needs: []Kind{NodePools}, check: karpenterPermanentTaint,
		Why: "Karpenter assumes that the taint is permanent: it launches no nodes of the pool for pods that do not tolerate it.",
		Do:  "Move the taint from spec.template.spec.taints of the NodePool to startupTaints.",
	},
	{
		ID: "reclose-with-startup-key", Severity: Warning, check: recloseWithStartupKey,
		Why: "Cluster Autoscaler assumes that a node in use on which the gate closes again is still starting: it counts the node as not ready, and stops scaling if more than 45 % of all nodes are not ready.",
		Do:  "Set recloseTaint to a key with the prefix status-taint.cluster-autoscaler.kubernetes.io/ (see docs/guides/autoscalers.md), or set reclosePolicy to OnReboot (a node that reboots is starting again), and existingNodes to Ignore or Adopt. A gate with closeWhen has neither: give its taint a key with this prefix.",
	},
	{
		ID: "autoscaler-does-not-know-key", Severity: Warning, Needs: []Kind{Deployments}, check: autoscalerDoesNotKnowKey,
		Why: "Cluster Autoscaler assumes that an unknown taint is permanent on every new node of the group: it concludes that pending pods fit on none of these nodes, and does not scale up.",
		Do:  "Use a key with the prefix startup-taint.cluster-autoscaler.kubernetes.io/, or pass the key to Cluster Autoscaler as --startup-taint, or its prefix as --startup-taint-prefix (for a recloseTaint, the key as --status-taint).",
	},
	{
		ID: "descheduler-evicts", Severity: Warning, Needs: []Kind{Deployments, CronJobs, DeschedulerPolicies, Nodes}, check: deschedulerEvicts,
		Why: "The plugin RemovePodsViolatingNodeTaints evicts, in the descheduler's next round, the pods on the node that do not tolerate the taint, although its effect evicts no running pods.",
		Do:  "Change excludedTaints or includedTaints of the plugin as described in the message. List the keys of taint and recloseTaint of every gate.",
	},
	{
		ID: "kueue-replaces-nodes", Severity: Warning, Needs: []Kind{ResourceFlavors, Nodes}, check: kueueReplacesNodes,
		Why: "With topology-aware scheduling, Kueue 0.17 and newer treats a node as failed if a workload does not tolerate the node's taint and none of the workload's pods is still running there. It then replaces the node, or evicts the whole workload if no other node fits or if a second node fails.",
		Do:  "Set reclosePolicy to OnReboot or Never, and existingNodes to Ignore or Adopt. A gate with closeWhen has neither: let it use the effect PreferNoSchedule. If the flavor's workloads may also start on closed nodes, add a toleration of the taint to spec.tolerations of the ResourceFlavor.",
	},
	{
		ID: "spread-counts-closed-nodes", Severity: Warning, Needs: []Kind{Deployments, StatefulSets, Nodes}, check: spreadCountsClosedNodes,
		Why: "With whenUnsatisfiable DoNotSchedule and the default nodeTaintsPolicy Ignore, the scheduler counts closed nodes as a domain to which pods must be added. The pods stay pending until the gate opens, although other nodes have capacity.",
		Do:  "Set nodeTaintsPolicy: Honor in the topologySpreadConstraints of the workloads.",
	},
	{
		ID: "late-label", Severity: Warning, Needs: []Kind{Nodes}, check: lateLabel,
		Why: "The label is not on the Node when it is created. If the selector requires the label, new nodes are open until it is set; if the selector excludes it, the gate closes on them until then.",
		Do:  "Select by a label with which kubelets register (--node-labels, or the labels of the node pool), or add the gate's taint to the taints of the pool.",
	},
	{
		ID: "label-set-by-others", Severity: Warning, Needs: []Kind{Nodes}, check: labelSetByOthers,
		Why: "On existing nodes, a writer other than the kubelet set the label after the Node was created. If the selector requires the label, new nodes are open until it is set; if the selector excludes it, the gate closes on them until then.",
		Do:  "Select by a label with which kubelets register, or add the gate's taint to the taints of the pool.",
	},
	{
		ID: "other-writer", Severity: Warning, Needs: []Kind{Deployments, CiliumConfig}, check: otherWriter,
		Why: "Another program adds or removes the same taint by its own rules: the gate opens too early, or the two programs revert each other's changes.",
		Do:  "Disable it as described in the message.",
	},
	{
		ID: "stray-taint", Severity: Warning, Needs: []Kind{Nodes}, check: strayTaint,
		Why: "No gate with this key and this effect selects these nodes: no gate removes the taint, and it keeps pods off them.",
		Do:  "Change the writer of the taint (the pool's taints, kubelet --register-with-taints) to the gate's effect, or the gate's nodeSelector to select the nodes. Then remove the taints that remain: 'kubectl taint nodes <node> <key>:<effect>-'.",
	},
	{
		ID: "evicts-widely", Severity: Warning, Needs: []Kind{Nodes}, check: evictsWidely,
		Why: "The taint evicts running pods immediately and regardless of PodDisruptionBudgets, on half of a zone's nodes or more at a time.",
		Do:  "Lower budget.maxReclosed, or use NoSchedule.",
	},
	{
		ID: "budget-is-all", Severity: Warning, Needs: []Kind{Nodes}, check: budgetIsAll,
		Why: "A single bad rollout of what the gate's signals depend on closes it on every node of a zone.",
		Do:  "Lower budget.maxReclosed; the default is 20%.",
	},
	{
		ID: "budget-is-none", Severity: Warning, check: budgetIsNone,
		Why: "Without budget, the gate never closes because of a regression, existingNodes or closeWhen.",
		Do:  "Raise budget.maxReclosed, or state the intention with reclosePolicy OnReboot and existingNodes Ignore. A gate with closeWhen has neither: delete it if it should never close.",
	},
	{
		ID: "group-label-missing", Severity: Warning, Needs: []Kind{Nodes}, check: groupLabelMissing,
		Why: "A node without the label belongs to no group: the gate does not open on it.",
		Do:  "Add the label to the nodes, or narrow the gate's nodeSelector to nodes that have it (matchExpressions, operator Exists).",
	},
	{
		ID: "group-too-small", Severity: Warning, Needs: []Kind{Nodes}, check: groupTooSmall,
		Why: "Until more nodes join, such a group is incomplete: the gate opens on none of its nodes.",
		Do:  "If no more nodes are to join, lower openTogether.atLeast, or correct the label that declares the size.",
	},
	{
		ID: "group-size-unclear", Severity: Warning, Needs: []Kind{Nodes}, check: groupSizeUnclear,
		Why: "While no node of a group declares its size, the gate does not open on the group. If sizes differ, the largest applies.",
		Do:  "Set the label openTogether.sizeLabelKey to the number of nodes on each node of the group, or use a number in openTogether.atLeast.",
	},
	{
		ID: "group-exceeds-budget", Severity: Warning, Needs: []Kind{Nodes}, check: groupExceedsBudget,
		Why: "When such a group loses a node, the gate cannot close on all of its other nodes: some of them stay open until others have opened again.",
		Do:  "Raise budget.maxReclosed to the number of nodes of a group or more, or remove closeTogether.",
	},
	{
		ID: "no-boot-evidence", Severity: Warning, check: noBootEvidence,
		Why: "No signal can distinguish the current boot from an earlier one: after a reboot, the gate opens based on information from before it.",
		Do:  "Add a signal about pods (daemonSet, daemonSets, pods, completed) or a condition with maxHeartbeatAgeSeconds, or set reclosePolicy to Never.",
	},
	{
		ID: "selects-no-node", Severity: Note, Needs: []Kind{Nodes}, check: selectsNoNode,
		Why: "The gate currently has no effect.",
		Do:  "If such nodes should exist, correct nodeSelector.",
	},
}
