// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// kubelet is one node's identity and boot.
type kubelet struct {
	*env
	name string
	boot string
	api  client.Client
}

// kubelet returns a kubelet that has not registered its node yet.
func (e *env) kubelet(name string) *kubelet {
	e.Helper()
	api, err := client.New(e.cluster.Node(name), client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	return &kubelet{env: e, name: name, boot: string(uuid.NewUUID()), api: api}
}

// register creates the Node as the kubelet does, and returns it as the API server created
// it.
func (k *kubelet) register(change ...func(*corev1.Node)) *corev1.Node {
	k.Helper()
	node := k.newNode()
	for _, f := range change {
		f(node)
	}
	k.must(k.api.Create(k.Context(), node))
	return node
}

// registerWith registers a node that has a label.
func (e *env) registerWith(name, key, value string) (*kubelet, *corev1.Node) {
	e.Helper()
	k := e.kubelet(name)
	return k, k.register(func(n *corev1.Node) { n.Labels[key] = value })
}

// newNode returns the Node that the kubelet registers.
func (k *kubelet) newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: k.boot}, Conditions: []corev1.NodeCondition{ready(corev1.ConditionTrue, "")}},
	}
}

func ready(status corev1.ConditionStatus, message string) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// report writes the node's status as the kubelet.
func (k *kubelet) report(status corev1.ConditionStatus, message string) {
	k.Helper()
	k.writeReady(k.api, status, message, time.Now())
}

// writeReady writes the node's boot ID and its Ready condition, which last changed at the
// given time.
func (k *kubelet) writeReady(api client.Client, status corev1.ConditionStatus, message string, since time.Time) {
	k.Helper()
	k.writeStatus(api, fmt.Sprintf(`{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":%q,"message":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}`,
		k.boot, status, message, time.Now().UTC().Format(time.RFC3339), since.UTC().Format(time.RFC3339)))
}

// writeStatus merges fields into the node's status.
func (k *kubelet) writeStatus(api client.Client, status string) {
	k.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(api.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":`+status+`}`))))
}

// becomeUnreachable sets the node's Ready condition to Unknown, like the node lifecycle
// controller when the node's Lease has expired.
func (k *kubelet) becomeUnreachable() {
	k.Helper()
	k.writeStatus(k.admin, `{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}`)
}

// reboot gives the node a new boot ID, and reports it.
func (k *kubelet) reboot() {
	k.Helper()
	k.boot = string(uuid.NewUUID())
	k.report(corev1.ConditionTrue, "")
}

// node reads the Node.
func (k *kubelet) node() *corev1.Node {
	k.Helper()
	var node corev1.Node
	k.must(k.admin.Get(k.Context(), client.ObjectKey{Name: k.name}, &node))
	return &node
}

// patch changes the Node with a merge patch, as the administrator.
func (k *kubelet) patch(body string) {
	k.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Patch(k.Context(), node, client.RawPatch(types.MergePatchType, []byte(body))))
}

// patchAsKubelet patches the Node, or its status, with its own credentials.
func (k *kubelet) patchAsKubelet(patch string, status bool) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	body := client.RawPatch(types.MergePatchType, []byte(patch))
	if status {
		return k.api.Status().Patch(k.Context(), node, body)
	}
	return k.api.Patch(k.Context(), node, body)
}

// label adds a label to the node, as the administrator.
func (k *kubelet) label(key string) {
	k.Helper()
	k.setLabel(key, "")
}

// setLabel sets a label of the node, as the administrator.
func (k *kubelet) setLabel(key, value string) {
	k.Helper()
	k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
}

// unlabel removes a label from the node, as the administrator.
func (k *kubelet) unlabel(key string) {
	k.Helper()
	k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key))
}

// is checks the state of the gate on the node: taint and record must agree.
func (k *kubelet) is(gateName, state, key string) error {
	node := k.node()
	tainted := hasTaint(node, key)
	raw, recorded := node.Annotations[v1alpha1.RecordAnnotationPrefix+gateName]
	if state == isNone {
		if tainted || recorded {
			return fmt.Errorf("node %s has taints %v and record %q, want neither", k.name, keys(node), raw)
		}
		return nil
	}
	r, err := gate.ParseRecord(raw)
	if err != nil || r.State != state || tainted != (state == isClosed) {
		return fmt.Errorf("node %s has taints %v and record %q, want %s", k.name, keys(node), raw, state)
	}
	return nil
}

// becomes waits until the gate is in this state on the node.
func (k *kubelet) becomes(gateName, state, key string) {
	k.Helper()
	k.eventually(fmt.Sprintf("gate %s is %s on node %s", gateName, cmp.Or(state, "absent"), k.name), func() error { return k.is(gateName, state, key) })
}

// isTainted waits until the node has a taint with this key.
func (k *kubelet) isTainted(key string) {
	k.Helper()
	k.eventually(fmt.Sprintf("node %s has the taint %s", k.name, key), func() error { return unless(hasTaint(k.node(), key)) })
}

// record returns the gate's record on the node.
func (k *kubelet) record(gateName string) gate.Record {
	k.Helper()
	r, err := gate.ParseRecord(k.node().Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
	k.must(err)
	return r
}

// recordsBoot waits until the gate's record names the node's boot, and lists the pods that
// were ready by then. A container that starts later is evidence of this boot.
func (k *kubelet) recordsBoot(gateName string) {
	k.Helper()
	k.eventually("the record of gate "+gateName+" names the new boot and the pods that were ready", func() error {
		if r := k.record(gateName); r.Boot != k.boot || r.Digest == "*" {
			return fmt.Errorf("the record is %+v, want boot %s and a list of pods", r, k.boot)
		}
		return nil
	})
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// carries reports whether the node has exactly this taint.
func carries(node *corev1.Node, t v1alpha1.Taint) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return v1alpha1.TaintOf(have) == t })
}

// keys returns the node's taints as text.
func keys(node *corev1.Node) string {
	var all []string
	for _, t := range node.Spec.Taints {
		all = append(all, t.ToString())
	}
	return strings.Join(all, ",")
}

// records returns the names of the annotations that are records.
func records(n *corev1.Node) []string {
	var names []string
	for key := range n.Annotations {
		if name, is := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); is && name != "" {
			names = append(names, key)
		}
	}
	return names
}
