// SPDX-License-Identifier: Apache-2.0

package lint

// Rule is something that lint looks for.
type Rule struct {
	// ID is its name for good: programs go by it.
	ID       string
	Severity Severity
	// Needs are what must have been read for the rule to find anything, or all.
	Needs []Kind
	// Why and Do are those of its findings.
	Why, Do string
	check   func(*judge, *subject) []hit
}

// Rules are all that lint looks for. docs/lint.md has a section about each.
var Rules = []Rule{
	{
		ID: "not-accepted", Severity: Error, Needs: []Kind{TaintKeys, ReadinessRules}, check: notAccepted,
		Why: "The gate is not in force: it closes no node, and opens those that it had closed only by its signals.",
		Do:  "Do what the message says.",
	},
	{
		ID: "contended", Severity: Error, check: contended,
		Why: "Two writers fight over the taint. nodegate puts it back ever more rarely, and meanwhile the other one has its way.",
		Do:  "Silence the other writer (the gate's condition Contended names it), or use another key.",
	},
	{
		ID: "daemonset-missing", Severity: Error, Needs: []Kind{DaemonSets}, check: daemonSetMissing,
		Why: "The signal never holds: new nodes stay closed until the DaemonSet is there.",
		Do:  "Create the DaemonSet, or correct the namespace and the name in the gate.",
	},
	{
		ID: "daemonset-misses-nodes", Severity: Error, Needs: []Kind{DaemonSets, Nodes}, check: daemonSetMissesNodes,
		Why: "On nodes where the DaemonSet does not run the signal never holds: a new node like these stays closed.",
		Do:  "Narrow the gate's nodeSelector to the nodes on which the DaemonSet runs, or let it run on all of them.",
	},
	{
		ID: "daemon-does-not-tolerate", Severity: Error, Needs: []Kind{DaemonSets}, check: daemonDoesNotTolerate,
		Why: "A deadlock: the gate waits for the daemon, and its taint keeps the daemon away. With NoExecute, a running daemon is removed.",
		Do:  "Add a toleration of the taint (operator Exists, without effect) to the DaemonSet's pod template.",
	},
	{
		ID: "daemon-without-probe", Severity: Note, Needs: []Kind{DaemonSets}, check: daemonWithoutProbe,
		Why: "Its pods are ready as soon as they run, whether or not the daemon works.",
		Do:  "Give the daemon a readinessProbe, unless running is all that the gate is to wait for.",
	},
	{
		ID: "selects-no-daemonset", Severity: Warning, Needs: []Kind{DaemonSets}, check: selectsNoDaemonSet,
		Why: "A signal over no DaemonSets holds on every node: the gate opens at once.",
		Do:  "Correct the selector or the namespaces, or label the DaemonSets.",
	},
	{
		ID: "gates-deadlock", Severity: Error, Needs: []Kind{DaemonSets}, check: gatesDeadlock,
		Why: "Each gate waits for a daemon that the taint of the other keeps away: on a new node neither opens.",
		Do:  "Have one of the two daemons tolerate the other gate's taint.",
	},
	{
		ID: "operator-does-not-tolerate", Severity: Error, Needs: []Kind{DaemonSets, Deployments, Nodes}, check: operatorDoesNotTolerate,
		Why: "The daemon does not become ready without it, and every node on which it could run is this gate's: when all of them are new at once, as in a new cluster or after a failure of all, nothing opens.",
		Do:  "Add a toleration of the gate's taint to the Deployment, or leave it a node that the gate does not select.",
	},
	{
		ID: "sibling-does-not-tolerate", Severity: Warning, Needs: []Kind{DaemonSets, Deployments, Nodes}, check: siblingDoesNotTolerate,
		Why: "It is part of the same thing as the daemon (app.kubernetes.io/part-of), in its namespace. If the daemon needs it to become ready, then nothing opens when all nodes are new at once.",
		Do:  "If the daemon needs it, add a toleration of the gate's taint to the Deployment; if not, there is nothing to do.",
	},
	{
		ID: "nodegate-does-not-tolerate", Severity: Error, Needs: []Kind{Deployments, Nodes}, check: nodegateDoesNotTolerate,
		Why: "Every node on which nodegate could run is this gate's: when all of them are closed, nodegate itself cannot be started, and nothing opens.",
		Do:  "Install nodegate with the key among allowedTaintKeys, which has it tolerated, or add the toleration to its Deployment.",
	},
	{
		ID: "karpenter-startup-taint-missing", Severity: Error, Needs: []Kind{NodePools}, check: karpenterStartupTaintMissing,
		Why: "Karpenter takes the taint for one that stays: it holds the node for not initialized, and launches another for the pods that wait.",
		Do:  "Add the taint to spec.template.spec.startupTaints of the NodePool.",
	},
	{
		ID: "karpenter-permanent-taint", Severity: Error, Needs: []Kind{NodePools}, check: karpenterPermanentTaint,
		Why: "Karpenter reckons that the taint stays, so that it launches no node of the pool for pods that do not tolerate it.",
		Do:  "Move the taint from spec.template.spec.taints of the NodePool to startupTaints.",
	},
	{
		ID: "reclose-with-startup-key", Severity: Warning, Needs: []Kind{NodePools}, check: recloseWithStartupKey,
		Why: "An autoscaler takes a node in use that is closed again for one that is still starting: Cluster Autoscaler counts it as not ready, and stops where that are more than 45 % of all; Karpenter expects the taint to go soon.",
		Do:  "Set recloseTaint to a key that begins with status-taint.cluster-autoscaler.kubernetes.io/ (see docs/guides/autoscalers.md), or reclosePolicy to OnReboot: a node that reboots is starting again.",
	},
	{
		ID: "autoscaler-does-not-know-key", Severity: Warning, Needs: []Kind{Deployments}, check: autoscalerDoesNotKnowKey,
		Why: "Cluster Autoscaler takes a taint that it does not know for one that every new node of the group keeps: it reckons that the pods that wait fit on none of them, and does not scale up.",
		Do:  "Use a key that begins with startup-taint.cluster-autoscaler.kubernetes.io/, or pass it to Cluster Autoscaler as --startup-taint (of a recloseTaint, --status-taint).",
	},
	{
		ID: "late-label", Severity: Warning, check: lateLabel,
		Why: "The label is not on the Node when it is created. A selector that asks for it leaves new nodes open until it comes; one that excludes it closes them until then.",
		Do:  "Select by a label that kubelets register with (--node-labels, or that of the node pool), or taint the pool itself with the gate's taint.",
	},
	{
		ID: "label-set-by-others", Severity: Warning, Needs: []Kind{Nodes}, check: labelSetByOthers,
		Why: "On nodes that are there, somebody other than the kubelet has set the label after the Node was created. A selector that asks for it leaves new nodes open until it comes; one that excludes it closes them until then.",
		Do:  "Select by a label that kubelets register with, or taint the pool itself with the gate's taint.",
	},
	{
		ID: "other-writer", Severity: Warning, Needs: []Kind{Deployments, CiliumConfig}, check: otherWriter,
		Why: "It sets or removes the same taint by its own rules: the gate opens too early, or the two fight.",
		Do:  "Silence it, as the message says.",
	},
	{
		ID: "stray-taint", Severity: Warning, Needs: []Kind{Nodes}, check: strayTaint,
		Why: "A taint with the gate's key and another effect is no gate's: nobody removes it, and pods stay off.",
		Do:  "Correct who puts it there (the pool's taints, kubelet --register-with-taints) to the gate's effect, then remove it: kubectl taint nodes NAME KEY:EFFECT-.",
	},
	{
		ID: "evicts-widely", Severity: Warning, check: evictsWidely,
		Why: "The taint removes running pods at once and without regard for PodDisruptionBudgets, on up to half of a zone or more at a time.",
		Do:  "Lower budget.maxReclosed, or use NoSchedule.",
	},
	{
		ID: "budget-is-all", Severity: Warning, Needs: []Kind{Nodes}, check: budgetIsAll,
		Why: "One bad rollout of what the gate waits for closes every node of a zone.",
		Do:  "Lower budget.maxReclosed; 20% is the default.",
	},
	{
		ID: "budget-is-none", Severity: Warning, check: budgetIsNone,
		Why: "With no budget, nothing is ever closed for a regression, for existingNodes or by closeWhen.",
		Do:  "Raise budget.maxReclosed, or say what is meant: reclosePolicy OnReboot, existingNodes Ignore.",
	},
	{
		ID: "no-boot-evidence", Severity: Warning, check: noBootEvidence,
		Why: "None of the signals can tell the current boot from an earlier one: after a reboot the gate opens on what was known before.",
		Do:  "Add a signal about pods (daemonSet, daemonSets, pods) or a condition with maxHeartbeatAgeSeconds, or set reclosePolicy to Never.",
	},
	{
		ID: "selects-no-node", Severity: Note, Needs: []Kind{Nodes}, check: selectsNoNode,
		Why: "The gate has nothing to do at present.",
		Do:  "If there should be such nodes, correct nodeSelector.",
	},
}
