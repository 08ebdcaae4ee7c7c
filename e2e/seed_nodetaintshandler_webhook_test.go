// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster"
)

// The webhook provides what nodetaintshandler's webhook does, on an API server that cannot
// close gates by policy.
func TestSeedNodetaintshandlerWebhook(t *testing.T) {
	o := newOlderEnv(t)
	for _, part := range []struct {
		name string
		test func(*olderEnv)
	}{
		{"ColdClusterWithoutReplicas", coldCluster},
		{"ClosesBirthsOpensOnReadiness", webhookClosesBirths},
		{"SkipsByLabel", webhookSkips},
		{"WrongValueRegisters", webhookWrongValue},
		{"EveryReplicaServes", everyReplicaServes},
		{"Unreachable", webhookUnreachable},
		{"GuardsAndRights", guardsOnOlder},
		{"StolenToken", func(o *olderEnv) { stolenToken(o.env) }},
		{"OnlyTheAPIServer", onlyTheAPIServer},
		{"APIServerRestarts", webhookAfterRestart},
		{"CertificateRotates", certificateRotates},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(o.sub(t)) })
	}
}

// The first node registers although no replica runs yet, and the gate closes later. With
// failure policy Fail, nodetaintshandler would reject the node forever; with Ignore, it never
// tainted the node.
func coldCluster(o *olderEnv) {
	o.must(o.admin.Create(o.Context(), newGate("first", keyA, byLabel("fit"))))
	k := o.kubelet("first")
	o.must(born(k.register()))
	o.replica()
	k.becomes("first", isClosed, keyA)
}

// The webhook closes gates at birth, like the policy, and keeps other annotations and taints.
func webhookClosesBirths(o *olderEnv) {
	r := o.serve(1)[0]
	ds := o.agent() // Ready means that closing at birth is proved
	o.declare(newGate("second", keyB, byLabel("fit")))
	o.shows(r.metrics, "nodegate_birth_closing_proved", 2)
	k := o.kubelet("n1")
	node := k.register(func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "agent": `{"state":"Open"}`, "other": "kept"}
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/pool", Effect: corev1.TaintEffectNoExecute}}
	})
	o.must(born(node, keyA, keyB))
	want := fmt.Sprintf(`{"state":"Closed","reason":"Birth","boot":%q,"taint":"%s:NoSchedule","source":"crd"}`, k.boot, keyA)
	if got := node.Annotations[v1alpha1.RecordAnnotationPrefix+"agent"]; got != want || node.Annotations["other"] != "kept" || node.Spec.Taints[0].Key != "example.com/pool" {
		o.Errorf("the Node was created with annotations %v and taints %v", node.Annotations, node.Spec.Taints)
	}
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	o.must(k.is("second", isClosed, keyB))
	k.label("fit")
	k.becomes("second", isOpen, keyB)
	k.wrote(2) // one for each opening
}

// The gate does not select system pools of AKS.
func webhookSkips(o *olderEnv) {
	o.serve(1)
	ng := newGate("agent", keyA, byLabel("fit"))
	ng.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{
		{Key: "kubernetes.azure.com/mode", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"system"}},
	}
	o.declare(ng)
	system := o.kubelet("system").newNode()
	system.Labels["kubernetes.azure.com/mode"] = "system"
	o.must(o.admin.Create(o.Context(), system)) // kubelets must not set this label
	o.must(born(system))
	o.must(born(o.kubelet("user").register(), keyA))
}

// The kubelet registers a taint with the same key and effect and another value
// (--register-with-taints). nodetaintshandler added a second taint, so that the API server
// rejected the node. Here the node registers with its own value, which the controller then
// corrects.
func webhookWrongValue(o *olderEnv) {
	o.serve(1)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	k := o.kubelet("n1")
	node := k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	o.must(born(node, keyA))
	if count(node, keyA) != 1 {
		o.Errorf("the Node was created with taints %v", node.Spec.Taints)
	}
	o.eventually("the taint has the gate's value", func() error {
		return unless(carries(k.node(), v1alpha1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}))
	})
}

// One replica leads, and both serve. While one is replaced, gates are closed at birth.
func everyReplicaServes(o *olderEnv) {
	o.elects = true
	both := o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.eventually("each replica closes the gate at birth", func() error {
		for i, r := range both {
			o.service.use(r)
			if err := o.bornOnce(fmt.Sprintf("by-%d", i), keyA); err != nil {
				return err
			}
		}
		return nil
	})
	for i, r := range both {
		o.service.use(both[1-i])
		r.stop()
		o.must(born(o.kubelet(fmt.Sprintf("without-%d", i)).register(), keyA))
		both[i] = o.serve(1)[0]
		o.eventually("the new replica has read the gate", func() error { return o.bornOnce("new", keyA) })
	}
}

// bornOnce creates a node in a dry run, and checks its taints and records.
func (o *olderEnv) bornOnce(name string, wantKeys ...string) error {
	node := o.kubelet(name).newNode()
	if err := o.admin.Create(o.Context(), node, client.DryRunAll); err != nil {
		return err
	}
	return born(node, wantKeys...)
}

// The webhook refuses connections, or never responds: nodes register without the taint, and the
// controller closes the gate afterwards.
func webhookUnreachable(o *olderEnv) {
	o.serve(1)
	ng := o.declare(newGate("agent", keyA, byLabel("fit")))
	for name, fail := range map[string]func(){"refused": func() { o.service.use() }, "hung": o.service.hang} {
		fail()
		k := o.kubelet(name)
		o.must(born(o.registersInTime(k)))
		k.becomes("agent", isClosed, keyA)
	}
	// Editing a gate causes a new proof immediately.
	o.edit(ng, func() { ng.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b"} })
	o.eventually("the gate is not Ready", func() error {
		return o.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBirthNotProved)
	})
}

// The guards work on this API server. The webhook does not require any permission for Secrets
// or webhook configurations, not even for its own.
func guardsOnOlder(o *olderEnv) {
	o.serve(1)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	k := o.kubelet("n1")
	k.register()
	forged := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/agent":"{}"}}}`))
	if err := k.api.Patch(o.Context(), k.node(), forged); !apierrors.IsForbidden(err) {
		o.Errorf("a kubelet changed a record: %v, want Forbidden", err)
	}
	own, err := o.controllerClient(o.Context())
	o.must(err)
	secret, registration := o.secret(), o.registration()
	changed := registration.DeepCopy()
	changed.Webhooks[0].ClientConfig.URL, changed.Webhooks[0].ClientConfig.CABundle = new("https://attacker.invalid/"), nil
	changed.Webhooks[0].Rules[0].Resources = []string{"secrets"}
	for what, do := range map[string]func() error{
		"reading the webhook's Secret": func() error { return own.Get(o.Context(), client.ObjectKeyFromObject(secret), secret.DeepCopy()) },
		"listing Secrets": func() error {
			return own.List(o.Context(), &corev1.SecretList{}, client.InNamespace(installation.Namespace))
		},
		"updating the webhook's Secret": func() error { return own.Update(o.Context(), secret.DeepCopy()) },
		"deleting the webhook's Secret": func() error { return own.Delete(o.Context(), secret.DeepCopy()) },
		"reading the registration": func() error {
			return own.Get(o.Context(), client.ObjectKeyFromObject(registration), registration.DeepCopy())
		},
		"patching the registration": func() error { return own.Patch(o.Context(), changed.DeepCopy(), client.MergeFrom(registration)) },
		"updating the registration": func() error { return own.Update(o.Context(), changed.DeepCopy()) },
		"deleting the registration": func() error { return own.Delete(o.Context(), registration.DeepCopy()) },
		"creating another one": func() error {
			another := changed.DeepCopy()
			another.Name, another.ResourceVersion = "another", ""
			return own.Create(o.Context(), another)
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			o.Errorf("%s: %v, want Forbidden", what, err)
		}
	}
}

// If the API server has a client certificate for webhooks, replicas answer only the API server.
func onlyTheAPIServer(o *olderEnv) {
	o.known = true
	r := o.serve(1)[0]
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.must(born(o.kubelet("n1").register(), keyA))
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the test is about the client's identity
	response, err := anonymous.Post("https://"+r.address+admission.WebhookPath, "application/json", strings.NewReader("{}"))
	if err == nil {
		response.Body.Close()
		o.Errorf("a client without certificate got the response %s", response.Status)
	}
}

// The first nodes that register after a restart of the API server are closed.
func webhookAfterRestart(o *olderEnv) {
	o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.must(o.cluster.RestartComponent(o.Context(), testcluster.APIServer))
	for i := range 20 {
		o.must(born(o.kubelet(fmt.Sprintf("n%02d", i)).register(), keyA))
	}
}

// The serving certificate and its authority are replaced while nodes register continuously
// through both replicas. The gate is closed on all of them.
func certificateRotates(o *olderEnv) {
	both := o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))

	ctx, cancel := context.WithCancel(o.Context())
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	var requests sync.RWMutex // read-locked while a node registers
	nodes, errs := 0, []error{}
	for worker := range 2 {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				requests.RLock()
				err := o.bornOnce(fmt.Sprintf("n-%d-%d", worker, i), keyA)
				requests.RUnlock()
				mu.Lock()
				if nodes++; err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	awaitNodes := func(n int) { // that many more
		mu.Lock()
		want := nodes + n
		mu.Unlock()
		o.eventually("nodes register", func() error {
			mu.Lock()
			defer mu.Unlock()
			return unless(nodes >= want)
		})
	}
	before := o.secret()
	o.certify(true)
	if now := o.secret(); bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) || bytes.Equal(now.Data["ca.crt"], before.Data["ca.crt"]) {
		o.Error("the authority or the serving certificate was not replaced")
	}
	for _, r := range both {
		o.eventually("the new certificate is served", func() error { return o.serves(r) })
	}
	for range 5 { // new connections use the new certificate
		awaitNodes(10)
		requests.Lock() // the webhook cannot answer a request whose connection breaks
		o.service.cut()
		requests.Unlock()
	}
	cancel()
	running.Wait()
	for _, err := range errs {
		o.Error(err)
	}
	o.Logf("%d nodes registered, with %d errors", nodes, len(errs))
	if bundle := o.registration().Webhooks[0].ClientConfig.CABundle; bytes.Count(bundle, []byte("BEGIN")) != 2 {
		o.Errorf("the API server no longer trusts the old authority:\n%s", bundle)
	}
}

// serves verifies that a replica serves the certificate in the Secret.
func (o *olderEnv) serves(r *replica) error {
	connection, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate is compared below
	if err != nil {
		return err
	}
	defer connection.Close()
	block, _ := pem.Decode(o.secret().Data[corev1.TLSCertKey])
	if !bytes.Equal(connection.ConnectionState().PeerCertificates[0].Raw, block.Bytes) {
		return errNotYet
	}
	return nil
}
