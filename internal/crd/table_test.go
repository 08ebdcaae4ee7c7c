// SPDX-License-Identifier: Apache-2.0

package crd_test

import "strings"

// rule is a rule of the API and two minimal specs, one that satisfies it and one that
// violates it. Both are merged into base; null removes a field. A spec that begins with
// "-" is a signal, and replaces the signals of base.
type rule struct {
	// at and message are the field and the message of the rejection.
	at, message string
	// keep is accepted. breaks is rejected because of this rule only.
	keep, breaks string
}

// base is a complete gate.
const base = `
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata:
  name: example
spec:
  nodeSelector: {}
  taint: {key: example.com/not-ready, effect: NoSchedule}
  openWhen:
  - {name: agent, daemonSet: {namespace: kube-system, name: agent}}
`

// rules specifies everything that the API rejects.
var rules = []rule{
	// Required fields.
	{
		at: "spec.nodeSelector", message: "Required value",
		keep: "nodeSelector: {}", breaks: "nodeSelector: null",
	}, {
		at: "spec.taint", message: "Required value",
		keep: "taint: {key: a, effect: NoSchedule}", breaks: "taint: null",
	}, {
		at: "spec.taint.key", message: "Required value",
		keep: "taint: {key: a, effect: NoSchedule}", breaks: "taint: {effect: NoSchedule}",
	}, {
		at: "spec.taint.effect", message: "Required value",
		keep: "taint: {key: a, effect: PreferNoSchedule}", breaks: "taint: {key: a}",
	}, {
		at: "spec", message: "set exactly one of openWhen (closed until its signals hold) and closeWhen (closed while its signals hold)",
		keep: "{}", breaks: "openWhen: null",
	}, {
		at: "spec", message: "set exactly one of openWhen (closed until its signals hold) and closeWhen (closed while its signals hold)",
		keep:   "{openWhen: null, closeWhen: [{name: a, label: {key: a}}]}",
		breaks: "closeWhen: [{name: a, label: {key: a}}]",
	}, {
		at: "spec.openWhen", message: "should have at least 1 items",
		keep: "{}", breaks: "openWhen: []",
	}, {
		at: "spec.openWhen", message: "must have at most 16 items",
		keep: signals(16), breaks: signals(17),
	}, {
		at: "spec.closeWhen", message: "should have at least 1 items",
		keep: closeWhen(""), breaks: "{openWhen: null, closeWhen: []}",
	}, {
		at: "spec.closeWhen", message: "must have at most 16 items",
		keep:   "{openWhen: null, " + strings.Replace(signals(16), "openWhen", "closeWhen", 1) + "}",
		breaks: "{openWhen: null, " + strings.Replace(signals(17), "openWhen", "closeWhen", 1) + "}",
	},

	// Fields that exclude or require closeWhen.
	{
		at: "spec.closeWhen", message: "completed must not be used in closeWhen, because it requires evidence of the current boot, which only openWhen gates have; use openWhen",
		keep:   "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}}}",
		breaks: "{openWhen: null, closeWhen: [{name: a, anyOf: [{name: a, label: {key: a}}, {name: b, completed: {namespace: a, selector: {matchLabels: {a: b}}}}]}]}",
	}, {
		at: "spec.reclosePolicy", message: "reclosePolicy must not be set when closeWhen is set; remove it",
		keep: "reclosePolicy: Never", breaks: closeWhen("reclosePolicy: Never"),
	}, {
		at: "spec.existingNodes", message: "existingNodes must not be set when closeWhen is set, because a closeWhen gate applies to every selected node; remove it",
		keep: "existingNodes: Adopt", breaks: closeWhen("existingNodes: Adopt"),
	}, {
		at: "spec.recloseTaint", message: "recloseTaint must not be set when closeWhen is set, because a closeWhen gate has only one taint; remove it",
		keep:   "recloseTaint: {key: a, effect: NoSchedule}",
		breaks: closeWhen("recloseTaint: {key: a, effect: NoSchedule}"),
	}, {
		at: "spec.bypassedPods", message: "bypassedPods must not be set when closeWhen is set; remove it",
		keep: "bypassedPods: Report", breaks: closeWhen("bypassedPods: Report"),
	}, {
		at: "spec.bypassedPods", message: "bypassedPods has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove bypassedPods, or use NoSchedule",
		keep:   "{bypassedPods: Evict, acknowledge: [PodEviction]}",
		breaks: "{bypassedPods: Evict, acknowledge: [PodEviction], taint: {key: a, effect: PreferNoSchedule}}",
	}, {
		at: "spec.bypassedPods", message: "bypassedPods Evict evicts running pods; add PodEviction to acknowledge, or use Report",
		keep:   "{bypassedPods: Evict, acknowledge: [PodEviction]}",
		breaks: "bypassedPods: Evict",
	}, {
		at: "spec.bypassedPods", message: "bypassedPods has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove bypassedPods, or use NoSchedule",
		keep:   "{bypassedPods: Report, taint: {key: a, effect: PreferNoSchedule}, recloseTaint: {key: b, effect: NoSchedule}}",
		breaks: "{bypassedPods: Report, taint: {key: a, effect: PreferNoSchedule}, recloseTaint: {key: b, effect: PreferNoSchedule}}",
	}, {
		at: "spec.bypassedPods", message: "bypassedPods has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove bypassedPods, or use NoSchedule",
		keep:   "{bypassedPods: Report, recloseTaint: {key: b, effect: PreferNoSchedule}}",
		breaks: "{bypassedPods: Report, taint: {key: a, effect: PreferNoSchedule}}",
	}, {
		at: "spec.bypassedPods", message: "bypassedPods Hold has no effect with reclosePolicy Never, because the gate does not close again; use another reclosePolicy",
		keep: "{bypassedPods: Hold, reclosePolicy: OnRegression}", breaks: "{bypassedPods: Hold, reclosePolicy: Never}",
	}, {
		at: "spec.holdSeconds", message: "holdSeconds requires bypassedPods Hold; remove holdSeconds",
		keep: "{bypassedPods: Hold, holdSeconds: 60}", breaks: "{bypassedPods: Report, holdSeconds: 60}",
	}, {
		at: "spec.holdSeconds", message: "should be greater than or equal to 1",
		keep: "{bypassedPods: Hold, holdSeconds: 1}", breaks: "{bypassedPods: Hold, holdSeconds: 0}",
	}, {
		at: "spec.holdSeconds", message: "should be less than or equal to 86400",
		keep: "{bypassedPods: Hold, holdSeconds: 86400}", breaks: "{bypassedPods: Hold, holdSeconds: 86401}",
	}, {
		at: "spec.tolerate", message: "tolerate must not be set when closeWhen is set, because a closeWhen gate waits for no DaemonSet; remove it",
		keep:   "{tolerate: true, openWhen: [{name: s, daemonSet: {namespace: a, name: b}}]}",
		breaks: "{openWhen: null, tolerate: true, closeWhen: [{name: s, daemonSet: {namespace: a, name: b}}]}",
	}, {
		at: "spec.tolerate", message: "tolerate requires a signal of kind daemonSet or daemonSets; add one, or remove tolerate",
		keep:   "{tolerate: true, openWhen: [{name: s, daemonSets: {namespaces: [a], selector: {}}}]}",
		breaks: "{tolerate: true, openWhen: [{name: s, label: {key: x}}]}",
	}, {
		at: "spec.tolerate", message: "tolerate requires a signal of kind daemonSet or daemonSets; add one, or remove tolerate",
		keep:   "{tolerate: true, openWhen: [{name: s, anyOf: [{name: a, daemonSet: {namespace: a, name: b}}, {name: b, label: {key: x}}]}]}",
		breaks: "{tolerate: true, openWhen: [{name: s, anyOf: [{name: a, label: {key: z}}, {name: b, label: {key: x}}]}]}",
	}, {
		at: "spec.tolerate", message: "tolerate has no effect with taint.effect PreferNoSchedule, which does not keep pods off the node; remove tolerate, or use NoSchedule",
		keep:   "{tolerate: true, openWhen: [{name: s, daemonSet: {namespace: a, name: b}}], taint: {key: a, effect: PreferNoSchedule}, recloseTaint: {key: b, effect: NoSchedule}}",
		breaks: "{tolerate: true, openWhen: [{name: s, daemonSet: {namespace: a, name: b}}], taint: {key: a, effect: PreferNoSchedule}}",
	}, {
		at: "spec.recloseTaint.value", message: "recloseTaint must differ from taint in more than its value; use another key, or remove recloseTaint",
		keep:   "recloseTaint: {key: example.com/not-ready, effect: NoSchedule}",
		breaks: "recloseTaint: {key: example.com/not-ready, value: again, effect: NoSchedule}",
	}, {
		at: "spec.recloseTaint.value", message: "recloseTaint must differ from taint in more than its value; use another key, or remove recloseTaint",
		keep:   "{taint: {key: a, value: x, effect: NoSchedule}, recloseTaint: {key: a, value: x, effect: NoSchedule}}",
		breaks: "{taint: {key: a, value: x, effect: NoSchedule}, recloseTaint: {key: a, effect: NoSchedule}}",
	}, {
		at: "spec.recloseTaint.value", message: "recloseTaint must differ from taint in more than its value; use another key, or remove recloseTaint",
		keep:   "{taint: {key: a, value: '', effect: NoSchedule}, recloseTaint: {key: a, effect: NoSchedule}}",
		breaks: "{taint: {key: a, value: x, effect: NoSchedule}, recloseTaint: {key: a, value: z, effect: NoSchedule}}",
	}, {
		at: "spec.recloseTaint.value", message: "recloseTaint must differ from taint in more than its value; use another key, or remove recloseTaint",
		keep:   "{acknowledge: [PodEviction], recloseTaint: {key: example.com/not-ready, value: again, effect: NoExecute}}",
		breaks: "{acknowledge: [PodEviction], recloseTaint: {key: example.com/not-ready, value: again, effect: NoSchedule}}",
	}, {
		at: "spec.reopen", message: "reopen Manual requires closeWhen; remove reopen",
		keep: closeWhen("reopen: Manual"), breaks: "reopen: Manual",
	}, {
		at: "spec.timing.closeAfterSeconds", message: "timing.closeAfterSeconds must not be set when closeWhen is set, because a closeWhen gate closes immediately; remove it",
		keep: closeWhen("timing: {closeAfterSeconds: 0}"), breaks: closeWhen("timing: {closeAfterSeconds: 60}"),
	}, {
		at: "spec.timing.closeAfterSeconds", message: "timing.closeAfterSeconds must not be set when closeWhen is set, because a closeWhen gate closes immediately; remove it",
		keep: "timing: {closeAfterSeconds: 60}", breaks: closeWhen("timing: {closeAfterSeconds: 121}"),
	},

	// Risks that must be acknowledged.
	{
		at: "spec.taint.effect", message: "taint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",
		keep:   "{taint: {key: a, effect: NoExecute}, acknowledge: [PodEviction]}",
		breaks: "taint: {key: a, effect: NoExecute}",
	}, {
		at: "spec.taint.effect", message: "taint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",
		keep:   closeWhen("taint: {key: a, effect: NoExecute}, acknowledge: [PodEviction]"),
		breaks: closeWhen("taint: {key: a, effect: NoExecute}"),
	}, {
		at: "spec.recloseTaint.effect", message: "recloseTaint.effect NoExecute evicts running pods; add PodEviction to acknowledge, or use NoSchedule",
		keep:   "{recloseTaint: {key: a, effect: NoExecute}, acknowledge: [PodEviction]}",
		breaks: "recloseTaint: {key: a, effect: NoExecute}",
	}, {
		at: "spec.taint.key", message: "taint.key node.kubernetes.io/out-of-service detaches volumes; add VolumeDetach to acknowledge, or use another key",
		keep:   closeWhen("taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]"),
		breaks: closeWhen("taint: {key: node.kubernetes.io/out-of-service, effect: NoExecute}, acknowledge: [PodEviction]"),
	}, {
		at: "spec.taint.key", message: "taint.key node.kubernetes.io/out-of-service requires closeWhen, so that the taint is removed as soon as the node is reporting again; use closeWhen, or another key",
		keep:   closeWhen("taint: {key: node.kubernetes.io/out-of-service, effect: NoExecute}, acknowledge: [PodEviction, VolumeDetach]"),
		breaks: "{taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]}",
	}, {
		at: "spec.reopen", message: "reopen must not be Manual with taint.key node.kubernetes.io/out-of-service, which is removed as soon as the node is reporting again; remove reopen",
		keep:   closeWhen("reopen: Automatic, taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]"),
		breaks: closeWhen("reopen: Manual, taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]"),
	}, {
		at: "spec.recloseTaint.key", message: "recloseTaint.key node.kubernetes.io/out-of-service is only for closeWhen gates, which have no recloseTaint; use another key",
		keep:   "recloseTaint: {key: a, effect: NoSchedule}",
		breaks: "{recloseTaint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]}",
	}, {
		at: "spec.acknowledge[0]", message: `supported values: "PodEviction", "VolumeDetach"`,
		keep: "acknowledge: [PodEviction]", breaks: "acknowledge: [Everything]",
	}, {
		at: "spec.acknowledge[1]", message: `Duplicate value: "PodEviction"`,
		keep: "acknowledge: [PodEviction]", breaks: "acknowledge: [PodEviction, PodEviction]",
	},

	// Taints.
	{
		at: "spec.taint.key", message: "taint key must be a qualified name; write it as name or example.com/name",
		keep: "taint: {key: Example.COM_key, effect: NoSchedule}", breaks: "taint: {key: -key, effect: NoSchedule}",
	}, {
		at: "spec.taint.key", message: "taint key must be a qualified name; write it as name or example.com/name",
		keep: "taint: {key: example.com/key, effect: NoSchedule}", breaks: "taint: {key: Example.com/key, effect: NoSchedule}",
	}, {
		at: "spec.recloseTaint.key", message: "taint key must be a qualified name; write it as name or example.com/name",
		keep: "recloseTaint: {key: a/b, effect: NoSchedule}", breaks: "recloseTaint: {key: a/b/c, effect: NoSchedule}",
	}, {
		at: "spec.taint.key", message: "taint keys under node.kubernetes.io/ belong to Kubernetes; choose another key",
		keep: "taint: {key: node.kubernetes.io.example.com/a, effect: NoSchedule}", breaks: "taint: {key: node.kubernetes.io/not-ready, effect: NoSchedule}",
	}, {
		at: "spec.recloseTaint.key", message: "taint keys under node.kubernetes.io/ belong to Kubernetes; choose another key",
		keep: "recloseTaint: {key: a, effect: NoSchedule}", breaks: "recloseTaint: {key: node.kubernetes.io/unschedulable, effect: NoSchedule}",
	}, {
		at: "spec.taint.key", message: "taint key must not mark nodes that are being set up or shut down, which affects every gate; choose another key",
		keep: "taint: {key: karpenter.sh/example, effect: NoSchedule}", breaks: "taint: {key: karpenter.sh/unregistered, effect: NoSchedule}",
	}, {
		at: "spec.recloseTaint.key", message: "taint key must not mark nodes that are being set up or shut down, which affects every gate; choose another key",
		keep: "recloseTaint: {key: a, effect: NoSchedule}", breaks: "recloseTaint: {key: node.cloudprovider.kubernetes.io/shutdown, effect: NoSchedule}",
	}, {
		at: "spec.taint.value", message: "taint value must be empty or consist of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
		keep: "taint: {key: a, value: A-1_b.c, effect: NoSchedule}", breaks: `taint: {key: a, value: "a b", effect: NoSchedule}`,
	}, {
		at: "spec.taint.effect", message: `supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		keep: "taint: {key: a, effect: PreferNoSchedule}", breaks: "taint: {key: a, effect: NoAdmit}",
	},

	// Names.
	{
		at: "metadata", message: "metadata.name must be a DNS label of at most 63 characters (lower-case letters, digits and '-'), because it becomes part of an annotation key on nodes",
		keep: named(strings.Repeat("a", 63)), breaks: named(strings.Repeat("a", 64)),
	}, {
		at: "metadata", message: "metadata.name must be a DNS label of at most 63 characters (lower-case letters, digits and '-'), because it becomes part of an annotation key on nodes",
		keep: named("a-b"), breaks: named("a.b"),
	}, {
		at: "spec.openWhen[0].name", message: "signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit",
		keep: "- {name: a-1, label: {key: a}}", breaks: "- {name: A, label: {key: a}}",
	}, {
		at: "spec.openWhen[0].anyOf[0].name", message: "signal name must consist of lower-case letters, digits and '-', beginning and ending with a letter or digit",
		keep: anyOf("{name: a, label: {key: a}}"), breaks: anyOf("{name: a-, label: {key: a}}"),
	}, {
		at: "spec.openWhen[1]", message: `Duplicate value: {"name":"a"}`,
		keep: "openWhen: [{name: a, label: {key: a}}, {name: b, label: {key: a}}]", breaks: "openWhen: [{name: a, label: {key: a}}, {name: a, label: {key: b}}]",
	}, {
		at: "spec.openWhen[0].anyOf[1]", message: `Duplicate value: {"name":"a"}`,
		keep: anyOf("{name: a, label: {key: a}}"), breaks: "- {name: a, anyOf: [{name: a, label: {key: a}}, {name: a, label: {key: b}}]}",
	},

	// The kind of a signal.
	{
		at: "spec.openWhen[0]", message: "a signal has exactly one kind; set one of daemonSet, daemonSets, pods, completed, condition, label, annotation, csiDriver, resource, resourceSlices, object, expression and anyOf",
		keep: "- {name: a, label: {key: a}}", breaks: "- {name: a}",
	}, {
		at: "spec.openWhen[0]", message: "a signal has exactly one kind; set one of daemonSet, daemonSets, pods, completed, condition, label, annotation, csiDriver, resource, resourceSlices, object, expression and anyOf",
		keep: "- {name: a, annotation: {key: a}}", breaks: "- {name: a, label: {key: a}, annotation: {key: a}}",
	}, {
		at: "spec.openWhen[0].anyOf[0]", message: "a signal inside anyOf has exactly one kind; set one of daemonSet, daemonSets, pods, completed, condition, label, annotation, csiDriver, resource, resourceSlices, object and expression",
		keep: anyOf("{name: a, label: {key: a}}"), breaks: anyOf("{name: a}"),
	}, {
		at: "spec.openWhen[0].anyOf", message: "should have at least 2 items",
		keep: anyOf("{name: a, label: {key: a}}"), breaks: "- {name: a, anyOf: [{name: a, label: {key: a}}]}",
	},

	// daemonSet and daemonSets.
	{
		at: "spec.openWhen[0].daemonSet.namespace", message: "namespace must be a DNS label (lower-case letters, digits and '-'); correct it",
		keep: "- {name: a, daemonSet: {namespace: a-1, name: a}}", breaks: "- {name: a, daemonSet: {namespace: a.b, name: a}}",
	}, {
		at: "spec.openWhen[0].daemonSet.name", message: "name must be the name of a DaemonSet (lower-case letters, digits, '-' and '.'); correct it",
		keep: "- {name: a, daemonSet: {namespace: a, name: a.b}}", breaks: "- {name: a, daemonSet: {namespace: a, name: a_b}}",
	}, {
		at: "spec.openWhen[0].daemonSet.minReadySeconds", message: "should be greater than or equal to 0",
		keep: "- {name: a, daemonSet: {namespace: a, name: a, minReadySeconds: 60}}", breaks: "- {name: a, daemonSet: {namespace: a, name: a, minReadySeconds: -1}}",
	}, {
		at: "spec.openWhen[0].daemonSets.minReadySeconds", message: "should be less than or equal to 86400",
		keep: "- {name: a, daemonSets: {namespaces: [a], selector: {}, minReadySeconds: 86400}}", breaks: "- {name: a, daemonSets: {namespaces: [a], selector: {}, minReadySeconds: 86401}}",
	}, {
		at: "spec.openWhen[0].pods.minReadySeconds", message: "should be greater than or equal to 0",
		keep: pods("minReadySeconds: 60"), breaks: pods("minReadySeconds: -1"),
	}, {
		at: "spec.openWhen[0].daemonSets.namespaces[0]", message: "namespace must be a DNS label (lower-case letters, digits and '-'); correct it",
		keep: "- {name: a, daemonSets: {namespaces: [a], selector: {}}}", breaks: "- {name: a, daemonSets: {namespaces: [A], selector: {}}}",
	}, {
		at: "spec.openWhen[0].daemonSets.namespaces", message: "should have at least 1 items",
		keep: "- {name: a, daemonSets: {namespaces: [a], selector: {}}}", breaks: "- {name: a, daemonSets: {namespaces: [], selector: {}}}",
	}, {
		at: "spec.openWhen[0].daemonSets.selector", message: "Required value",
		keep: "- {name: a, daemonSets: {namespaces: [a], selector: {}}}", breaks: "- {name: a, daemonSets: {namespaces: [a]}}",
	},

	// pods.
	{
		at: "spec.openWhen[0].pods.namespace", message: "namespace must be a DNS label (lower-case letters, digits and '-'); correct it",
		keep: pods("namespace: a"), breaks: pods("namespace: a/b"),
	}, {
		at: "spec.openWhen[0].pods.selector", message: "selector must not be empty, because it would match every pod in the namespace; add matchLabels or matchExpressions",
		keep: pods("selector: {matchExpressions: [{key: a, operator: Exists}]}"), breaks: pods("selector: {}"),
	}, {
		at: "spec.openWhen[0].pods.selector", message: "selector must not be empty, because it would match every pod in the namespace; add matchLabels or matchExpressions",
		keep: pods("selector: {matchLabels: {a: b}}"), breaks: pods("selector: {matchLabels: {}, matchExpressions: []}"),
	}, {
		at: "spec.openWhen[0].pods.readyAnnotation", message: "readyAnnotation is required when readyBy is Annotation or Either, and must not be set otherwise",
		keep: pods("readyBy: Annotation, readyAnnotation: a"), breaks: pods("readyBy: Annotation"),
	}, {
		at: "spec.openWhen[0].pods.readyAnnotation", message: "readyAnnotation is required when readyBy is Annotation or Either, and must not be set otherwise",
		keep: pods("readyBy: Either, readyAnnotation: a"), breaks: pods("readyAnnotation: a"),
	}, {
		at: "spec.openWhen[0].pods.readyAnnotation", message: "readyAnnotation must be an annotation key; write it as name or example.com/name",
		keep: pods("readyBy: Either, readyAnnotation: example.com/a"), breaks: pods("readyBy: Either, readyAnnotation: a/b/c"),
	}, {
		at: "spec.openWhen[0].pods.readyBy", message: `supported values: "Condition", "Annotation", "Either"`,
		keep: pods("readyBy: Condition"), breaks: pods("readyBy: Both"),
	}, {
		at: "spec.openWhen[0].pods.require", message: `supported values: "Any", "All"`,
		keep: pods("require: All"), breaks: pods("require: Some"),
	},

	// condition.
	{
		at: "spec.openWhen[0].condition", message: "set exactly one of type and typePattern",
		keep: condition("type: Ready, status: 'True'"), breaks: condition("status: 'True'"),
	}, {
		at: "spec.openWhen[0].condition", message: "set exactly one of type and typePattern",
		keep: condition("typePattern: .*Problem, status: 'False'"), breaks: condition("type: Ready, typePattern: Ready, status: 'True'"),
	}, {
		at: "spec.openWhen[0].condition", message: "set exactly one of status and statusPattern",
		keep: condition("type: Ready, statusPattern: True|Unknown"), breaks: condition("type: Ready"),
	}, {
		at: "spec.openWhen[0].condition", message: "set exactly one of status and statusPattern",
		keep: condition("type: Ready, status: 'True'"), breaks: condition("type: Ready, status: 'True', statusPattern: 'True'"),
	}, {
		at: "spec.openWhen[0].condition.typePattern", message: "error parsing regexp: missing closing ): `a(` evaluating rule: typePattern must be a regular expression in RE2 syntax; correct it",
		keep: condition("typePattern: 'a(b)?', status: 'True'"), breaks: condition("typePattern: a(, status: 'True'"),
	}, {
		at: "spec.openWhen[0].condition.statusPattern", message: "error parsing regexp: missing closing ): `^(?:\\Qa)$` evaluating rule: statusPattern must be a regular expression in RE2 syntax; correct it",
		keep: condition(`type: Ready, statusPattern: '\Qa\E'`), breaks: condition(`type: Ready, statusPattern: '\Qa'`),
	}, {
		at: "spec.openWhen[0].condition.statusPattern", message: "error parsing regexp: unexpected ): `a)|(b` evaluating rule: statusPattern must be a regular expression in RE2 syntax; correct it",
		keep: condition(`type: Ready, statusPattern: (a)|(b)`), breaks: condition(`type: Ready, statusPattern: a)|(b`),
	}, {
		at: "spec.openWhen[0].condition.whenMissing", message: `supported values: "NotYet", "Holds"`,
		keep: condition("type: Ready, status: 'True', whenMissing: Holds"), breaks: condition("type: Ready, status: 'True', whenMissing: Unknown"),
	}, {
		at: "spec.openWhen[0].condition.maxHeartbeatAgeSeconds", message: "should be greater than or equal to 1",
		keep: condition("type: Ready, status: 'True', maxHeartbeatAgeSeconds: 1"), breaks: condition("type: Ready, status: 'True', maxHeartbeatAgeSeconds: 0"),
	},

	// label and annotation.
	{
		at: "spec.openWhen[0].label.key", message: "key must be a label or annotation key; write it as name or example.com/name",
		keep: "- {name: a, label: {key: example.com/a}}", breaks: "- {name: a, label: {key: example.com/}}",
	}, {
		at: "spec.openWhen[0].label.value", message: "value must be a label value, at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; correct it",
		keep: `- {name: a, label: {key: a, value: ""}}`, breaks: `- {name: a, label: {key: a, value: "a,b"}}`,
	}, {
		at: "spec.openWhen[0].label.value", message: "value must be a label value, at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; correct it",
		keep:   "- {name: a, label: {key: a, value: " + strings.Repeat("a", 63) + "}}",
		breaks: "- {name: a, label: {key: a, value: " + strings.Repeat("a", 64) + "}}",
	}, {
		at: "spec.openWhen[0].annotation.key", message: "key must be a label or annotation key; write it as name or example.com/name",
		keep: `- {name: a, annotation: {key: a, value: "any, thing"}}`, breaks: `- {name: a, annotation: {key: "a b"}}`,
	},

	// completed.
	{
		at: "spec.openWhen[0].completed.namespace", message: "namespace must be a DNS label (lower-case letters, digits and '-'); correct it",
		keep:   "- {name: a, completed: {namespace: a-1, selector: {matchLabels: {a: b}}}}",
		breaks: "- {name: a, completed: {namespace: a.b, selector: {matchLabels: {a: b}}}}",
	}, {
		at: "spec.openWhen[0].completed.selector.matchLabels", message: "should have at least 1 properties",
		keep:   "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}}}",
		breaks: "- {name: a, completed: {namespace: a, selector: {matchLabels: {}}}}",
	}, {
		at: "spec.openWhen[0].completed.maxAgeSeconds", message: "should be greater than or equal to 60",
		keep:   "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}, maxAgeSeconds: 60}}",
		breaks: "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}, maxAgeSeconds: 59}}",
	}, {
		at: "spec.openWhen[0].completed.maxAgeSeconds", message: "should be less than or equal to 31536000",
		keep:   "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}, maxAgeSeconds: 31536000}}",
		breaks: "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}, maxAgeSeconds: 31536001}}",
	},

	// object.
	{
		at: "spec.openWhen[0].object.group", message: "group must be an API group, such as cilium.io; correct it",
		keep: object("group: cilium.io"), breaks: object("group: a/b"),
	}, {
		at: "spec.openWhen[0].object.version", message: "version must be a version of the API group, such as v1; correct it",
		keep: object("version: v1beta1"), breaks: object("version: 1" + "a"),
	}, {
		at: "spec.openWhen[0].object.kind", message: "kind must be the name of a kind, such as CiliumNode; correct it",
		keep: object("kind: CiliumNode"), breaks: object("kind: ciliumnodes"),
	}, {
		at: "spec.openWhen[0].object.kind", message: "kind must not be Secret or a kind that nodegate reads for its own purposes, such as Pod or Node, because the results of expressions would reveal its content; use another signal, such as pods or condition, or another kind",
		keep: object("kind: Secret, group: example.com"), breaks: object("kind: Secret"),
	}, {
		at: "spec.openWhen[0].object.kind", message: "kind must not be Secret or a kind that nodegate reads for its own purposes, such as Pod or Node, because the results of expressions would reveal its content; use another signal, such as pods or condition, or another kind",
		keep: object("kind: DaemonSet"), breaks: object("kind: DaemonSet, group: apps"),
	}, {
		at: "spec.openWhen[0].object.namespace", message: "namespace must be a DNS label (lower-case letters, digits and '-'); correct it",
		keep: object("namespace: a-1"), breaks: object("namespace: a.b"),
	}, {
		at: "spec.openWhen[0].object.matchLabels", message: "matchLabels has a key that is not a label key; write it as name or example.com/name",
		keep: object("matchLabels: {example.com/a: b}"), breaks: object(`matchLabels: {"a,b": c}`),
	}, {
		at: "spec.openWhen[0].object.nodeBy", message: `supported values: "Name", "Label", "Field", "Owner"`,
		keep: object("nodeBy: Owner"), breaks: object("nodeBy: Annotation"),
	}, {
		at: "spec.openWhen[0].object.nodeLabel", message: "nodeLabel is required when nodeBy is Label, and must not be set otherwise",
		keep: object("nodeBy: Label, nodeLabel: example.com/node"), breaks: object("nodeBy: Label"),
	}, {
		at: "spec.openWhen[0].object.nodeLabel", message: "nodeLabel must be a label key; write it as name or example.com/name",
		keep: object("nodeBy: Label, nodeLabel: node"), breaks: object(`nodeBy: Label, nodeLabel: "a b"`),
	}, {
		at: "spec.openWhen[0].object.nodeField", message: "nodeField is required when nodeBy is Field, and must not be set otherwise",
		keep: object("nodeBy: Field, nodeField: spec.nodeName"), breaks: object("nodeField: spec.nodeName"),
	}, {
		at: "spec.openWhen[0].object.nodeField", message: "nodeField must be a path of fields, such as spec.nodeName; correct it",
		keep: object(`nodeBy: Field, nodeField: "metadata.annotations['example.com/node']"`), breaks: object("nodeBy: Field, nodeField: spec..nodeName"),
	}, {
		at: "spec.openWhen[0].object.expression", message: "should be at least 1 chars long",
		keep: object("expression: 'true'"), breaks: object("expression: ''"),
	}, {
		at: "spec.openWhen[0].object.expression", message: "may not be more than 1024 bytes",
		keep: object("expression: '" + strings.Repeat("a", 1024) + "'"), breaks: object("expression: '" + strings.Repeat("a", 1025) + "'"),
	}, {
		at: "spec.openWhen[0].object.expression", message: "expression must have at most 100 opening brackets; split it into several signals",
		keep: object("expression: '" + strings.Repeat("(", 100) + "'"), breaks: object("expression: '" + strings.Repeat("(", 101) + "'"),
	}, {
		at: "spec.openWhen[0].object.expression", message: "expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead",
		keep: object("expression: optMap optMap optMap"), breaks: object("expression: optMap optMap optMap optMap"),
	},

	// csiDriver, resource, resourceSlices, expression.
	{
		at: "spec.openWhen[0].csiDriver.name", message: "name must be the name of a CSI driver, such as ebs.csi.aws.com; correct it",
		keep: "- {name: a, csiDriver: {name: ebs.csi.aws.com}}", breaks: "- {name: a, csiDriver: {name: ebs/csi}}",
	}, {
		at: "spec.openWhen[0].resource.name", message: "name must be the name of a resource, such as example.com/gpu; correct it",
		keep: "- {name: a, resource: {name: example.com/gpu}}", breaks: "- {name: a, resource: {name: a/b/c}}",
	}, {
		at: "spec.openWhen[0].resource.atLeast", message: "atLeast must be greater than 0 and have an exponent of at most two digits; correct it, or remove it to use the default of 1",
		keep: "- {name: a, resource: {name: a, atLeast: 4Gi}}", breaks: "- {name: a, resource: {name: a, atLeast: 0Gi}}",
	}, {
		at: "spec.openWhen[0].resource.atLeast", message: "atLeast must be greater than 0 and have an exponent of at most two digits; correct it, or remove it to use the default of 1",
		keep: "- {name: a, resource: {name: a, atLeast: 1}}", breaks: "- {name: a, resource: {name: a, atLeast: -1}}",
	}, {
		at: "spec.openWhen[0].resource.atLeast", message: "atLeast must be greater than 0 and have an exponent of at most two digits; correct it, or remove it to use the default of 1",
		keep: "- {name: a, resource: {name: a, atLeast: '1e99'}}", breaks: "- {name: a, resource: {name: a, atLeast: '1e2000000000'}}",
	}, {
		at: "spec.openWhen[0].resourceSlices.driver", message: "driver must be the name of a DRA driver, such as gpu.example.com; correct it",
		keep: "- {name: a, resourceSlices: {driver: gpu.example.com}}", breaks: "- {name: a, resourceSlices: {driver: GPU}}",
	}, {
		at: "spec.openWhen[0].resourceSlices.pools", message: `supported values: "NodeLocal", "Shared"`,
		keep: resourceSlices("pools: Shared"), breaks: resourceSlices("pools: Network"),
	}, {
		at: "spec.openWhen[0].resourceSlices.minDevices", message: "should be greater than or equal to 1",
		keep: resourceSlices("minDevices: 1"), breaks: resourceSlices("minDevices: 0"),
	}, {
		at: "spec.openWhen[0].resourceSlices.minDevices", message: "should be less than or equal to 65536",
		keep: resourceSlices("minDevices: 65536"), breaks: resourceSlices("minDevices: 65537"),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors", message: "selectors require minDevices, because they select the devices that are counted; set minDevices, or remove selectors",
		keep: resourceSlices("minDevices: 1, selectors: [{cel: {expression: 'true'}}]"), breaks: resourceSlices("selectors: [{cel: {expression: 'true'}}]"),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors", message: "should have at least 1 items",
		keep: resourceSlices("minDevices: 1, selectors: [{cel: {expression: 'true'}}]"), breaks: resourceSlices("minDevices: 1, selectors: []"),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors", message: "must have at most 4 items",
		keep:   resourceSlices("minDevices: 1, selectors: [" + list(4, "{cel: {expression: 'true'}}") + "]"),
		breaks: resourceSlices("minDevices: 1, selectors: [" + list(5, "{cel: {expression: 'true'}}") + "]"),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors[0].cel.expression", message: "should be at least 1 chars long",
		keep: selector("true"), breaks: selector(""),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors[0].cel.expression", message: "may not be more than 1024 bytes",
		keep: selector(strings.Repeat("a", 1024)), breaks: selector(strings.Repeat("a", 1025)),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors[0].cel.expression", message: "expression must have at most 100 opening brackets; split it into several selectors",
		keep: selector(strings.Repeat("(", 100)), breaks: selector(strings.Repeat("(", 101)),
	}, {
		at: "spec.openWhen[0].resourceSlices.selectors[0].cel.expression", message: "expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead",
		keep: selector("optMap optMap optMap"), breaks: selector("optMap optMap optMap optMap"),
	}, {
		at: "spec.openWhen[0].expression", message: "should be at least 1 chars long",
		keep: `- {name: a, expression: "true"}`, breaks: `- {name: a, expression: ""}`,
	}, {
		at: "spec.openWhen[0].expression", message: "may not be more than 1024 bytes",
		keep:   `- {name: a, expression: "true` + strings.Repeat("ß", 1020) + `"}`, // the limit is in characters
		breaks: `- {name: a, expression: "true` + strings.Repeat(" ", 1021) + `"}`,
	}, {
		at: "spec.openWhen[0].expression", message: "expression must have at most 100 opening brackets; split it into several signals",
		keep:   `- {name: a, expression: "` + strings.Repeat(`(\n[{`, 33) + "(" + `)"}`,
		breaks: `- {name: a, expression: "` + strings.Repeat(`(\n[{`, 33) + "((" + `)"}`,
	}, {
		at: "spec.openWhen[0].expression", message: "expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead",
		keep:   `- {name: a, expression: "a.optMap(x, x)\n.optFlatMap(x, x) .optMap(x, x)"}`,
		breaks: `- {name: a, expression: "a.optMap(x, x)\n.optFlatMap(x, x) .optMap(x, x)\n.optMap(x, x)"}`,
	},

	// Label selectors, which have the same rules everywhere.
	{
		at: "spec.nodeSelector.matchLabels", message: "matchLabels has a key that is not a label key; write it as name or example.com/name",
		keep: "nodeSelector: {matchLabels: {example.com/a: b}}", breaks: `nodeSelector: {matchLabels: {"a,b": c}}`,
	}, {
		at: "spec.nodeSelector.matchLabels[a]", message: "a label value must contain only letters, digits, '-', '_' and '.'; correct it",
		keep: `nodeSelector: {matchLabels: {a: ""}}`, breaks: `nodeSelector: {matchLabels: {a: "b\nIn c d"}}`,
	}, {
		at: "spec.nodeSelector.matchLabels[a]", message: "a label value must begin and end with a letter or digit; correct it",
		keep: "nodeSelector: {matchLabels: {a: b_c}}", breaks: "nodeSelector: {matchLabels: {a: _b}}",
	}, {
		at: "spec.nodeSelector.matchLabels.a", message: "may not be more than 63 bytes",
		keep:   "nodeSelector: {matchLabels: {a: " + strings.Repeat("b", 63) + "}}",
		breaks: "nodeSelector: {matchLabels: {a: " + strings.Repeat("b", 64) + "}}",
	}, {
		at: "spec.nodeSelector.matchExpressions[0].key", message: "key is not a label key; write it as name or example.com/name",
		keep: matching("{key: example.com/a, operator: Exists}"), breaks: matching(`{key: "a b", operator: Exists}`),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].operator", message: `supported values: "In", "NotIn", "Exists", "DoesNotExist"`,
		keep: matching("{key: a, operator: DoesNotExist}"), breaks: matching("{key: a, operator: Gt, values: ['1']}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values", message: "operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",
		keep: matching("{key: a, operator: In, values: [b]}"), breaks: matching("{key: a, operator: In}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values", message: "operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",
		keep: matching("{key: a, operator: NotIn, values: [b, '']}"), breaks: matching("{key: a, operator: NotIn, values: []}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values", message: "operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",
		keep: matching("{key: a, operator: Exists, values: []}"), breaks: matching("{key: a, operator: Exists, values: [b]}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values[1]", message: "a label value must contain only letters, digits, '-', '_' and '.'; correct it",
		keep: matching("{key: a, operator: In, values: [b, c.d]}"), breaks: matching("{key: a, operator: In, values: [b, 'c,d']}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values[1]", message: "a label value must begin and end with a letter or digit; correct it",
		keep: matching("{key: a, operator: In, values: [b, c-d]}"), breaks: matching("{key: a, operator: In, values: [b, c-]}"),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values[0]", message: `must be of type string: "null"`,
		keep: matching("{key: a, operator: In, values: ['']}"), breaks: matching("{key: a, operator: In, values: [null]}"),
	}, {
		at: "spec.nodeSelector.matchExpressions", message: "must have at most 8 items",
		keep: matching(list(8, "{key: a, operator: Exists}")), breaks: matching(list(9, "{key: a, operator: Exists}")),
	}, {
		at: "spec.nodeSelector.matchExpressions[0].values", message: "must have at most 64 items",
		keep: matching("{key: a, operator: In, values: [" + list(64, "b") + "]}"), breaks: matching("{key: a, operator: In, values: [" + list(65, "b") + "]}"),
	}, {
		at: "spec.openWhen[0].daemonSets.selector.matchExpressions[0].values", message: "operators In and NotIn need at least one value, Exists and DoesNotExist take none; correct values",
		keep:   "- {name: a, daemonSets: {namespaces: [a], selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}}",
		breaks: "- {name: a, daemonSets: {namespaces: [a], selector: {matchExpressions: [{key: a, operator: In}]}}}",
	}, {
		at: "spec.openWhen[0].pods.selector.matchLabels[a]", message: "a label value must contain only letters, digits, '-', '_' and '.'; correct it",
		keep: pods("selector: {matchLabels: {a: b}}"), breaks: pods("selector: {matchLabels: {a: 'b c'}}"),
	},

	// Waits, deadline, budget, stamp.
	{
		at: "spec.timing.closeAfterSeconds", message: "should be greater than or equal to 0",
		keep: "timing: {closeAfterSeconds: 0}", breaks: "timing: {closeAfterSeconds: -1}",
	}, {
		at: "spec.timing.rolloutGraceSeconds", message: "should be less than or equal to 86400",
		keep: "timing: {rolloutGraceSeconds: 86400}", breaks: "timing: {rolloutGraceSeconds: 86401}",
	}, {
		at: "spec.timing.minClosedSeconds", message: "should be greater than or equal to 0",
		keep: "timing: {minClosedSeconds: 0}", breaks: "timing: {minClosedSeconds: -1}",
	}, {
		at: "spec.timing.minClosedSeconds", message: "timing.minClosedSeconds must be 0 when reopen is Manual; remove it",
		keep: closeWhen("timing: {minClosedSeconds: 60}"), breaks: closeWhen("reopen: Manual, timing: {minClosedSeconds: 60}"),
	}, {
		at: "spec.timing.minClosedSeconds", message: "timing.minClosedSeconds would keep node.kubernetes.io/out-of-service on a node that is reporting again; remove it",
		keep:   closeWhen("timing: {minClosedSeconds: 60}"),
		breaks: closeWhen("timing: {minClosedSeconds: 60}, taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]"),
	}, {
		at: "spec.timing.openAfterSeconds", message: `"string"`,
		keep: "timing: {openAfterSeconds: 60}", breaks: "timing: {openAfterSeconds: 5m}",
	}, {
		at: "spec.timing.openAfterSeconds", message: "timing.openAfterSeconds must be 0 when reopen is Manual; remove it",
		keep: closeWhen("timing: {openAfterSeconds: 60}"), breaks: closeWhen("reopen: Manual, timing: {openAfterSeconds: 60}"),
	}, {
		at: "spec.timing.openAfterSeconds", message: "timing.openAfterSeconds would keep node.kubernetes.io/out-of-service on a node that is reporting again; remove it",
		keep:   closeWhen("timing: {openAfterSeconds: 60}"),
		breaks: closeWhen("timing: {openAfterSeconds: 60}, taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, acknowledge: [VolumeDetach]"),
	}, {
		at: "spec.deadline", message: "set at least one of podMissingSeconds and readySeconds",
		keep: "deadline: {readySeconds: 600}", breaks: "deadline: {action: Open}",
	}, {
		at: "spec.deadline.readySeconds", message: "should be greater than or equal to 1",
		keep: "deadline: {readySeconds: 1}", breaks: "deadline: {readySeconds: 0}",
	}, {
		at: "spec.deadline.readySeconds", message: "should be less than or equal to 604800",
		keep: "deadline: {readySeconds: 604800}", breaks: "deadline: {readySeconds: 604801}",
	}, {
		at: "spec.deadline", message: "deadline must not be set when closeWhen is set; remove it",
		keep: closeWhen("timing: {minClosedSeconds: 60}"), breaks: closeWhen("deadline: {readySeconds: 600}"),
	}, {
		at: "spec.deadline.podMissingSeconds", message: "deadline.podMissingSeconds requires a signal of kind daemonSet, daemonSets, pods or completed, or anyOf with only these kinds; add one, or use deadline.readySeconds",
		keep:   "{openWhen: [{name: a, daemonSet: {namespace: a, name: a}}], deadline: {podMissingSeconds: 600}}",
		breaks: "{openWhen: [{name: a, label: {key: a}}], deadline: {podMissingSeconds: 600}}",
	}, {
		at: "spec.deadline.podMissingSeconds", message: "deadline.podMissingSeconds requires a signal of kind daemonSet, daemonSets, pods or completed, or anyOf with only these kinds; add one, or use deadline.readySeconds",
		keep:   "{" + podOr("completed: {namespace: a, selector: {matchLabels: {a: b}}}") + ", deadline: {podMissingSeconds: 600}}",
		breaks: "{" + podOr("label: {key: a}") + ", deadline: {podMissingSeconds: 600}}",
	}, {
		at: "spec.deadline.action", message: `supported values: "KeepClosed", "Open"`,
		keep: "deadline: {readySeconds: 600, action: Open}", breaks: "deadline: {readySeconds: 600, action: Explode}",
	}, {
		at: "spec.openTogether", message: "openTogether must not be set when closeWhen is set; remove it",
		keep: together("labelKey: rack, atLeast: 4"), breaks: closeWhen("openTogether: {labelKey: rack, atLeast: 4}"),
	}, {
		at: "spec.openTogether.labelKey", message: "Required value",
		keep: together("labelKey: rack, atLeast: 4"), breaks: together("atLeast: 4"),
	}, {
		at: "spec.openTogether.labelKey", message: "labelKey must be a label key; write it as name or example.com/name",
		keep: together("labelKey: example.com/rack, atLeast: 4"), breaks: together("labelKey: a rack, atLeast: 4"),
	}, {
		at: "spec.openTogether.atLeast", message: "Required value",
		keep: together("labelKey: rack, atLeast: 4"), breaks: together("labelKey: rack"),
	}, {
		at: "spec.openTogether.atLeast", message: "atLeast must be a number of nodes from 2 to 5000, or a percentage from 1% to 100%",
		keep: together("labelKey: rack, atLeast: 2"), breaks: together("labelKey: rack, atLeast: 1"),
	}, {
		at: "spec.openTogether.atLeast", message: "atLeast must be a number of nodes from 2 to 5000, or a percentage from 1% to 100%",
		keep: together("labelKey: rack, atLeast: 5000"), breaks: together("labelKey: rack, atLeast: 5001"),
	}, {
		at: "spec.openTogether.atLeast", message: "atLeast must be a number of nodes from 2 to 5000, or a percentage from 1% to 100%",
		keep:   together("labelKey: rack, sizeLabelKey: size, atLeast: 1%"),
		breaks: together("labelKey: rack, sizeLabelKey: size, atLeast: 0%"),
	}, {
		at: "spec.openTogether.atLeast", message: "atLeast must be a number of nodes from 2 to 5000, or a percentage from 1% to 100%",
		keep:   together("labelKey: rack, sizeLabelKey: size, atLeast: 100%"),
		breaks: together("labelKey: rack, sizeLabelKey: size, atLeast: 101%"),
	}, {
		at: "spec.openTogether.sizeLabelKey", message: "a percentage in atLeast requires sizeLabelKey, the label whose value is the number of nodes of the group; set sizeLabelKey, or use a number in atLeast",
		keep: together("labelKey: rack, sizeLabelKey: size, atLeast: 75%"), breaks: together("labelKey: rack, atLeast: 75%"),
	}, {
		at: "spec.openTogether.sizeLabelKey", message: "sizeLabelKey has no effect with a number in atLeast; remove it, or use a percentage in atLeast",
		keep: together("labelKey: rack, atLeast: 4"), breaks: together("labelKey: rack, sizeLabelKey: size, atLeast: 4"),
	}, {
		at: "spec.openTogether.sizeLabelKey", message: "sizeLabelKey must be a label key; write it as name or example.com/name",
		keep:   together("labelKey: rack, sizeLabelKey: example.com/size, atLeast: 75%"),
		breaks: together("labelKey: rack, sizeLabelKey: a size, atLeast: 75%"),
	}, {
		at: "spec.closeTogether", message: `supported values: "Never", "WhenIncomplete"`,
		keep: "{openTogether: {labelKey: rack, atLeast: 4}, closeTogether: Never}", breaks: "{openTogether: {labelKey: rack, atLeast: 4}, closeTogether: Always}",
	}, {
		at: "spec.closeTogether", message: "closeTogether requires openTogether, which specifies the group; set openTogether, or remove closeTogether",
		keep: "{openTogether: {labelKey: rack, atLeast: 4}, closeTogether: WhenIncomplete}", breaks: "closeTogether: WhenIncomplete",
	}, {
		at: "spec.closeTogether", message: "closeTogether WhenIncomplete has no effect with reclosePolicy Never, because the gate does not close again; use another reclosePolicy, or remove closeTogether",
		keep:   "{openTogether: {labelKey: rack, atLeast: 4}, closeTogether: WhenIncomplete, reclosePolicy: OnReboot}",
		breaks: "{openTogether: {labelKey: rack, atLeast: 4}, closeTogether: WhenIncomplete, reclosePolicy: Never}",
	}, {
		at: "spec.deadline.condition", message: `supported values: "None", "Publish"`,
		keep: "deadline: {readySeconds: 600, condition: None, action: Open}", breaks: "deadline: {readySeconds: 600, condition: Always}",
	}, {
		at: "spec.deadline.condition", message: "condition: Publish must not be set with action: Open, which opens the gate instead; remove one of them",
		keep: "deadline: {readySeconds: 600, condition: Publish}", breaks: "deadline: {readySeconds: 600, condition: Publish, action: Open}",
	}, {
		at: "spec.budget.maxReclosed", message: "maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%",
		keep: "budget: {maxReclosed: 100%}", breaks: "budget: {maxReclosed: 101%}",
	}, {
		at: "spec.budget.maxReclosed", message: "maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%",
		keep: "budget: {maxReclosed: 0}", breaks: "budget: {maxReclosed: -1}",
	}, {
		at: "spec.budget.maxReclosed", message: "maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%",
		keep: "budget: {maxReclosed: 5}", breaks: "budget: {maxReclosed: '5'}",
	}, {
		at: "spec.budget.maxReclosed", message: "maxReclosed must be a number of nodes from 0 to 1000000, or a percentage from 0% to 100%",
		keep: "budget: {maxReclosed: 1000000}", breaks: "budget: {maxReclosed: 4294967296}",
	}, {
		at: "spec.openedAtAnnotation", message: "openedAtAnnotation must be an annotation key; write it as name or example.com/name",
		keep: "openedAtAnnotation: example.com/opened-at", breaks: "openedAtAnnotation: opened at",
	}, {
		at: "spec.openedAtAnnotation", message: "annotations under nodegate.dev/ and its subdomains belong to nodegate; choose another key",
		keep: "openedAtAnnotation: opened-at", breaks: "openedAtAnnotation: override.nodegate.dev/example",
	}, {
		at: "spec.openedAtAnnotation", message: "annotations under nodegate.dev/ and its subdomains belong to nodegate; choose another key",
		keep: "openedAtAnnotation: mynodegate.dev/a", breaks: "openedAtAnnotation: nodegate.dev/a",
	}, {
		at: "spec.openedAtAnnotation", message: "annotations under kubernetes.io/ belong to Kubernetes; choose another key",
		keep: "openedAtAnnotation: startup.k8s.io/completedAt", breaks: "openedAtAnnotation: node.alpha.kubernetes.io/ttl",
	}, {
		at: "spec.openedAtAnnotation", message: "annotations under kubernetes.io/ belong to Kubernetes; choose another key",
		keep: "openedAtAnnotation: mykubernetes.io/a", breaks: "openedAtAnnotation: kubernetes.io/a",
	},

	// Enumerations.
	{
		at: "spec.reclosePolicy", message: `supported values: "Never", "OnReboot", "OnRegression"`,
		keep: "reclosePolicy: OnRegression", breaks: "reclosePolicy: Always",
	}, {
		at: "spec.existingNodes", message: `supported values: "Ignore", "Adopt", "CloseIfIdle", "Close"`,
		keep: "existingNodes: Close", breaks: "existingNodes: Open",
	}, {
		at: "spec.reopen", message: `supported values: "Automatic", "Manual"`,
		keep: "reopen: Automatic", breaks: "reopen: Never",
	}, {
		at: "spec.bypassedPods", message: `supported values: "Ignore", "Report", "Evict", "Hold"`,
		keep: "bypassedPods: Ignore", breaks: "bypassedPods: Delete",
	}, {
		at: "spec.mode", message: `supported values: "Enforce", "DryRun", "Paused"`,
		keep: "mode: DryRun", breaks: "mode: Observe",
	},
}

// signals returns n signals for openWhen.
func signals(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = "{name: s" + string(rune('a'+i)) + ", label: {key: a}}"
	}
	return "openWhen: [" + strings.Join(entries, ", ") + "]"
}

// closeWhen returns a closeWhen gate with additional fields.
func closeWhen(fields string) string {
	return "{openWhen: null, closeWhen: [{name: a, label: {key: a}}], " + fields + "}"
}

// anyOf returns a signal with this alternative and a valid one.
func anyOf(alternative string) string {
	return "- {name: any, anyOf: [" + alternative + ", {name: other, label: {key: a}}]}"
}

// podOr returns a signal that holds with a daemon or with the given alternative.
func podOr(alternative string) string {
	return "openWhen: [{name: any, anyOf: [{name: a, daemonSets: {namespaces: [a], selector: {}}}, {name: b, " + alternative + "}]}]"
}

// object returns an object signal; the fields replace valid ones.
func object(fields string) string {
	for field, valid := range map[string]string{"version": "v1", "kind": "A", "expression": "'true'"} {
		if !strings.Contains(fields, field+":") {
			fields += ", " + field + ": " + valid
		}
	}
	return "- {name: a, object: {" + fields + "}}"
}

// resourceSlices returns a resourceSlices signal with additional fields.
func resourceSlices(fields string) string {
	return "- {name: a, resourceSlices: {driver: gpu.example.com, " + fields + "}}"
}

// selector returns a resourceSlices signal with a selector.
func selector(expression string) string {
	return resourceSlices("minDevices: 1, selectors: [{cel: {expression: '" + expression + "'}}]")
}

// pods returns a pods signal; the fields replace valid ones.
func pods(fields string) string {
	for field, valid := range map[string]string{"namespace": "a", "selector": "{matchLabels: {a: b}}"} {
		if !strings.Contains(fields, field+":") {
			fields += ", " + field + ": " + valid
		}
	}
	return "- {name: a, pods: {" + fields + "}}"
}

func together(fields string) string { return "openTogether: {" + fields + "}" }

func condition(fields string) string { return "- {name: a, condition: {" + fields + "}}" }

func matching(expressions string) string {
	return "nodeSelector: {matchExpressions: [" + expressions + "]}"
}

func list(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+", ", n), ", ")
}

// named returns what gives the gate this name.
func named(name string) string { return "metadata: {name: " + name + "}" }
