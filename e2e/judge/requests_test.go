// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Messages of the API server.
const (
	byRecords     = `nodes "a" is forbidden: ValidatingAdmissionPolicy 'nodegate-records' with binding 'nodegate-records' denied request: annotations under gate.nodegate.dev/ are nodegate's records`
	byConfinement = `nodes "a" is forbidden: ValidatingAdmissionPolicy 'nodegate-confinement' with binding 'nodegate-confinement' denied request: `
	byBirth       = `nodes "a" is forbidden: policy 'nodegate-birth' with binding 'nodegate-birth' denied request: expression resulted in error`
	byWebhook     = `Internal error occurred: failed calling webhook "birth.nodegate.dev": failed to call webhook: context deadline exceeded`
	byOther       = `nodes "a" is forbidden: ValidatingAdmissionPolicy 'other' with binding 'other' denied request: no gate.nodegate.dev/ here`
	byRestriction = `nodes "a" is forbidden: node "a" is not allowed to modify taints`
	byRBAC        = `nodes "a" is forbidden: User "x" cannot patch resource "nodes" in API group "" at the cluster scope`
	byParameters  = `podtemplates "nodegate-birth" is forbidden: ValidatingAdmissionPolicy 'nodegate-parameters' with binding 'nodegate-parameters' denied request: x`
)

const (
	kubelet   = "system:node:a"
	lifecycle = "system:serviceaccount:kube-system:node-controller"
)

// sends adds a request to the log. The response is an error if there is a message.
func (s *builder) sends(user, verb, resource string, code int32, message, body string) *builder {
	r := revisions.Request{
		User: user, Verb: verb, Resource: resource, Name: "a", Code: code, Message: message, Body: []byte(body),
		AuditID: fmt.Sprint("sent-", len(s.requests)), Received: s.now, Done: s.now.Add(time.Millisecond),
	}
	if resource == "leases" {
		r.Namespace = corev1.NamespaceNodeLease
	}
	s.requests = append(s.requests, r)
	return s.pass(2 * time.Millisecond)
}

// isDenied adds a patch of node "a" that is rejected with 403.
func (s *builder) isDenied(user, message, body string) *builder {
	return s.sends(user, "patch", "nodes", 403, message, body)
}

// registersWith adds the rejected creation of node "a" with these taints and annotations.
func (s *builder) registersWith(code int32, message string, annotations map[string]string, keys ...string) *builder {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: annotations}}
	for _, key := range keys {
		withTaint(key)(&node)
	}
	body, _ := json.Marshal(node)
	return s.sends(kubelet, "create", "nodes", code, message, string(body))
}

// annotates is a merge patch of an annotation.
func annotates(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
}

const heartbeat = `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`

// manyAnnotations gives a node more annotations than any real node has.
func manyAnnotations(node *corev1.Node) {
	for i := range 1025 {
		node.Annotations[fmt.Sprint("x", i)] = ""
	}
}

// nodeRecord is the key of the record of gate "agent".
const nodeRecord = v1alpha1.RecordAnnotationPrefix + "agent"

var requestHistories = []history{
	// S5: nodegate stops no node from registering, reporting or being deleted.
	{RuleNodes, "everything is carried out", "", func(s *builder) {
		s.gate().born("a").sends(kubelet, "create", "nodes", 201, "", "").sends(kubelet, "patch", "nodes/status", 200, "", "")
		s.sends(kubelet, "update", "leases", 200, "", "").sends(kubelet, "update", "csinodes", 200, "", "").sends(lifecycle, "delete", "nodes", 200, "", "")
	}},
	{RuleNodes, "the birth policy rejects a registration", "policy 'nodegate-birth'", func(s *builder) {
		s.gate().registersWith(403, byBirth, nil)
	}},
	{RuleNodes, "the webhook does not answer, and the registration fails", `webhook "birth.nodegate.dev"`, func(s *builder) {
		s.gate().registersWith(500, byWebhook, nil)
	}},
	{RuleNodes, "the webhook rejects a registration", `webhook "birth.nodegate.dev"`, func(s *builder) {
		s.gate().registersWith(400, `admission webhook "birth.nodegate.dev" denied the request without explanation`, nil)
	}},
	{RuleNodes, "a registration has a record, and the policy rejects it instead of removing the record", "policy 'nodegate-birth'", func(s *builder) {
		s.gate().registersWith(403, byBirth, map[string]string{nodeRecord: "{}"})
	}},
	{RuleNodes, "the policy for records rejects a registration", "nodegate-records", func(s *builder) {
		s.gate().registersWith(403, byRecords, map[string]string{nodeRecord: "{}"})
	}},
	{RuleNodes, "another policy rejects a registration", "", func(s *builder) {
		s.gate().registersWith(403, byOther, nil).sends(kubelet, "create", "nodes", 201, "", "")
	}},
	{RuleNodes, "a registration is invalid because its taint was added again", "no two taints of the request", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.taints[1]: Duplicate value: {"Key":"`+gateTaint+`","Effect":"NoSchedule"}`, nil, gateTaint)
	}},
	{RuleNodes, "a registration is invalid because it has a taint twice", "", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.taints[1]: Duplicate value: {"Key":"`+gateTaint+`","Effect":"NoSchedule"}`, nil, gateTaint, gateTaint)
		s.sends(kubelet, "create", "nodes", 201, "", "")
	}},
	{RuleNodes, "a registration is invalid because of an added taint", "does not contain the taint", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.taints[1].key: Invalid value: "-"`, nil, gateTaint)
	}},
	{RuleNodes, "a registration is invalid because of an added annotation", "contains nothing of nodegate", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.annotations: Invalid value: "gate.nodegate.dev/A_"`, nil)
	}},
	{RuleNodes, "a registration is invalid because of its own annotation", "", func(s *builder) {
		const key = "override.nodegate.dev/A_"
		s.gate().registersWith(422, `Node "a" is invalid: metadata.annotations: Invalid value: "`+key+`"`, map[string]string{key: ""})
		s.sends(kubelet, "create", "nodes", 201, "", "")
	}},
	{RuleNodes, "records make the annotations of a registration too long", "are not too long", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`, map[string]string{"x": strings.Repeat("x", 262100)})
	}},
	{RuleNodes, "the annotations of a registration are too long", "", func(s *builder) {
		s.gate().registersWith(422, `Node "a" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`, map[string]string{"x": strings.Repeat("x", 262200)})
		s.sends(kubelet, "create", "nodes", 201, "", "")
	}},
	{RuleNodes, "the API server panics during a registration", "an expression of the birth policy", func(s *builder) {
		s.gate().registersWith(500, "APIServer panic'd: interface conversion", nil)
	}},
	{RuleNodes, "a heartbeat is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a").sends(kubelet, "patch", "nodes/status", 403, byRecords, heartbeat)
	}},
	{RuleNodes, "a heartbeat is rejected by the confinement of nodegate", "nodegate-confinement", func(s *builder) {
		s.gate().born("a").sends(kubelet, "patch", "nodes/status", 403, byConfinement, heartbeat)
	}},
	{RuleNodes, "a Lease is rejected", "nodegate-records", func(s *builder) {
		s.gate().born("a").sends(kubelet, "update", "leases", 403, byRecords, "{}")
	}},
	{RuleNodes, "a CSINode is rejected", "nodegate-records", func(s *builder) {
		s.gate().born("a").sends(kubelet, "create", "csinodes", 403, byRecords, "{}")
	}},
	{RuleNodes, "a deletion is rejected", "nodegate-records", func(s *builder) {
		s.gate().born("a").sends(lifecycle, "delete", "nodes", 403, byRecords, "")
	}},
	{RuleNodes, "the deletion of all Nodes is rejected", "nodegate-confinement", func(s *builder) {
		s.gate().born("a").sends(admin, "deletecollection", "nodes", 403, byConfinement, "")
	}},
	{RuleNodes, "a deletion is rejected by RBAC", "", func(s *builder) {
		s.gate().born("a").sends(kubelet, "delete", "nodes", 403, byRBAC, "").sends(lifecycle, "delete", "nodes", 200, "", "")
	}},
	{RuleNodes, "a user labels a node, which is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a").isDenied(otherUser, byRecords, `{"metadata":{"labels":{"x":"y"}}}`)
	}},
	{RuleNodes, "a kubelet changes another annotation, which is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a").isDenied(kubelet, byRecords, annotates("x", `"y"`))
	}},
	{RuleNodes, "a kubelet changes an annotation of a Node with too many, which is rejected", "", func(s *builder) {
		s.gate().born("a", manyAnnotations).isDenied(kubelet, byRecords, annotates("x", `"y"`))
	}},
	{RuleNodes, "a heartbeat of a Node with too many annotations is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a", manyAnnotations).sends(kubelet, "patch", "nodes/status", 403, byRecords, heartbeat)
	}},
	{RuleNodes, "a forged record is rejected", "", func(s *builder) {
		s.gate().born("a").isDenied(kubelet, byRecords, annotates(nodeRecord, `"{}"`))
	}},
	{RuleNodes, "the removal of a record is rejected", "", func(s *builder) {
		s.gate().born("a").isDenied(kubelet, byRecords, annotates(nodeRecord, "null"))
	}},
	{RuleNodes, "the removal of a record that does not exist is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a").isDenied(kubelet, byRecords, annotates(v1alpha1.RecordAnnotationPrefix+"other", "null"))
	}},
	{RuleNodes, "an override is rejected", "", func(s *builder) {
		s.gate().born("a").isDenied(otherUser, byRecords, `[{"op":"add","path":"/metadata/annotations/override.nodegate.dev~1agent","value":"{}"}]`)
	}},
	{RuleNodes, "a JSON Patch that repeats a record is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a", func(n *corev1.Node) { n.Annotations[nodeRecord] = "{}" })
		s.isDenied(otherUser, byRecords, `[{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1agent","value":"{}"}]`)
	}},
	{RuleNodes, "an update without the record is rejected", "", func(s *builder) {
		s.gate().born("a").sends(kubelet, "update", "nodes/status", 403, byRecords, `{"metadata":{"name":"a"}}`)
	}},
	{RuleNodes, "an update with the record is rejected", "changes neither records nor overrides", func(s *builder) {
		s.gate().born("a").sends(kubelet, "update", "nodes/status", 403, byRecords, s.body("a"))
	}},
	{RuleNodes, "an update with the record of its resourceVersion is rejected, and nodegate has changed the record meanwhile", "changes neither records nor overrides", func(s *builder) {
		s.gate(byLabel).born("a", labelled)
		body, received := s.body("a"), s.now
		s.opens("a").sends(kubelet, "update", "nodes/status", 403, byRecords, body)
		s.requests[0].Received = received
	}},
	{RuleNodes, "NodeRestriction rejects a heartbeat because of taints", "the request changes no taints", func(s *builder) {
		s.gate().born("a").sends(kubelet, "patch", "nodes/status", 403, byRestriction, heartbeat)
	}},
	{RuleNodes, "NodeRestriction rejects a change of taints", "", func(s *builder) {
		s.gate().born("a").isDenied(kubelet, byRestriction, `{"spec":{"taints":null}}`).sends(kubelet, "patch", "nodes/status", 200, "", "")
	}},
	{RuleNodes, "a Node gets a finalizer of nodegate", "finalizer nodegate.dev/held is added", func(s *builder) {
		s.gate().born("a", withFinalizer("nodegate.dev/held"))
	}},
	{RuleNodes, "a Node later gets a finalizer of nodegate", "finalizer gate.nodegate.dev/agent is added", func(s *builder) {
		s.gate().born("a").edit(otherUser, "a", withFinalizer("gate.nodegate.dev/agent"))
	}},
	{RuleNodes, "a Node has a finalizer of another tool", "", func(s *builder) {
		s.gate().born("a", withFinalizer("notnodegate.dev/x")).sends(kubelet, "create", "nodes", 201, "", "")
	}},

	// S6: nodegate's policies do not reject nodegate's own requests.
	{RuleLockout, "nodegate's requests are carried out", "", func(s *builder) {
		s.gate().born("a").sends(nodegate, "patch", "nodes", 200, "", "")
	}},
	{RuleLockout, "nodegate's patch is rejected", "denied request: nodegate may change only annotations", func(s *builder) {
		s.gate().born("a").isDenied(nodegate, byConfinement+"nodegate may change only annotations under gate.nodegate.dev/", "[]")
	}},
	{RuleLockout, "nodegate's patch conflicts", "", func(s *builder) {
		s.gate().born("a").sends(nodegate, "patch", "nodes", 422, "the server rejected our request due to an error in our request", "[]")
		s.sends(nodegate, "patch", "nodes", 200, "", "")
	}},
	{RuleLockout, "nodegate may not write its parameter", "nodegate-parameters", func(s *builder) {
		s.sends(nodegate, "patch", "podtemplates", 403, byParameters, "{}")
	}},
	{RuleLockout, "another user may not write the parameter", "", func(s *builder) {
		s.sends(otherUser, "patch", "podtemplates", 403, byParameters, "{}").sends(nodegate, "patch", "podtemplates", 200, "", "")
	}},
	{RuleLockout, "nodegate's patch of a Node with too many annotations is rejected", "", func(s *builder) {
		s.gate().born("a", manyAnnotations).isDenied(nodegate, byConfinement+"more than 1024", "[]")
	}},
	{RuleLockout, "nodegate detaches the volumes of a node that reports, which is rejected", "", func(s *builder) {
		s.gate().born("a").isDenied(nodegate, byConfinement+"node.kubernetes.io/out-of-service", detaches)
	}},
	{RuleLockout, "nodegate detaches the volumes of an unreachable node, which is rejected", "node.kubernetes.io/out-of-service", func(s *builder) {
		s.gate().born("a", unreachable).isDenied(nodegate, byConfinement+"node.kubernetes.io/out-of-service", detaches)
	}},
	{RuleLockout, "nodegate detaches the volumes of a node that reports, and another rule rejects that", "nodegate may not reorder", func(s *builder) {
		s.gate().born("a").isDenied(nodegate, byConfinement+"nodegate may not reorder the others", detaches)
	}},

	// S2: Only their owners change Nodes.
	{RuleForeign, "nodegate deletes a Node", "nodegate may not delete Nodes", func(s *builder) {
		s.gate().born("a").sends(nodegate, "delete", "nodes", 200, "", "")
	}},
	{RuleForeign, "another user deletes a Node, and nodegate may not", "", func(s *builder) {
		s.gate().born("a").sends(nodegate, "delete", "nodes", 403, byRBAC, "").sends(lifecycle, "delete", "nodes", 200, "", "")
	}},
}

const detaches = `[{"op":"add","path":"/spec/taints/-","value":{"key":"node.kubernetes.io/out-of-service"}}]`

func withFinalizer(name string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Finalizers = append(node.Finalizers, name) }
}

// body returns a node as its writer read it.
func (s *builder) body(name string) string {
	s.Helper()
	node := s.current[revisions.ID{Kind: revisions.KindNode, Name: name}].(*corev1.Node).DeepCopy() //nolint:forcetypeassert // a test's own objects
	node.ResourceVersion = fmt.Sprint(s.revision)
	body, err := json.Marshal(node)
	if err != nil {
		s.Fatal(err)
	}
	return string(body)
}

// Requests that failed for an unknown reason are listed, and do not count as checked. Nor do
// requests of users who may write everything, and requests that were answered otherwise.
func TestRequestsThatShowNothing(t *testing.T) {
	s := newBuilder(t)
	s.gate().born("a").registersWith(500, "etcdserver: request timed out", nil)
	s.registersWith(422, `Node "a" is invalid: spec.podCIDRs: Invalid value`, nil, gateTaint)
	s.sends(kubelet, "patch", "nodes/status", 504, "Timeout: request did not complete within requested timeout", heartbeat)
	s.isDenied(kubelet, byRecords, `[{"op":"test","path":"/metadata/name","value":"b"}]`)
	s.sends(kubelet, "patch", "nodes/status", 409, "the object has been modified", heartbeat)
	s.sends(admin, "patch", "nodes", 200, "", "")
	s.requests = append(s.requests, revisions.Request{User: "root", IsMaster: true, Verb: "update", Resource: "nodes", Name: "a", Code: 200})
	v := s.judged()
	got := fmt.Sprint(v.NotJudged[RuleNodes])
	const want = "map[creations of Nodes that are invalid for another reason than a taint or an annotation that nodegate adds:1 " +
		"creations of Nodes that failed with a server error:1 rejected requests that cannot be applied to a state of the Node:1 " +
		"requests that failed with a server error:1]"
	if got != want {
		t.Errorf("not judged: %s\nwant %s", got, want)
	}
	if checked := v.Checked[RuleNodes]; len(checked) > 0 {
		t.Errorf("checked: %v, want nothing", checked)
	}
}

// Rejected attacks are counted apart.
func TestRejectedAttacks(t *testing.T) {
	s := newBuilder(t)
	s.gate().born("a").isDenied(kubelet, byRecords, annotates(nodeRecord, `"{}"`)).sends(kubelet, "patch", "nodes/status", 200, "", "")
	v := s.judged()
	if got, want := fmt.Sprint(v.Checked[RuleNodes]), "map[rejected changes of records and overrides:1 reports of nodes' status:1]"; got != want {
		t.Errorf("checked: %s, want %s", got, want)
	}
}

// A violation by a request that is not about a node names none.
func TestVerdictNamesRejectedRequest(t *testing.T) {
	s := newBuilder(t)
	s.gate().sends(nodegate, "patch", "podtemplates", 403, byParameters, "{}").born("a")
	const want = "S6: revision 4, 12:01:00.004 by " + nodegate + " (patch, audit ID sent-0): patch of podtemplates is rejected (403): " + byParameters + "\n"
	if got := text(t, s.judged()); !strings.Contains(got, want) {
		t.Errorf("the verdict is\n%s\nwant\n%s", got, want)
	}
}
