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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster"
)

// TestSeedNodetaintshandlerWebhook is what users of nodetaintshandler have of its
// webhook, on an API server that cannot close births by itself.
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

// With no node and no replica there, the first node joins. nodetaintshandler's
// Fail would have kept it out for ever; its Ignore left it open for ever.
func coldCluster(o *olderEnv) {
	o.must(o.admin.Create(o.Context(), newGate("first", keyA, byLabel("fit"))))
	k := o.kubelet("first")
	o.must(born(k.register()))
	o.replica()
	k.becomes("first", isClosed, keyA)
}

func webhookClosesBirths(o *olderEnv) {
	r := o.serve(1)[0]
	ds := o.agent() // Ready, and so proved
	o.declare(newGate("second", keyB, byLabel("fit")))
	o.shows(r.metrics, "nodegate_birth_closing_proved", 2)
	k := o.kubelet("n1")
	node := k.register(func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "agent": `{"state":"Open"}`, "mine": "stays"}
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/pool", Effect: corev1.TaintEffectNoExecute}}
	})
	o.must(born(node, keyA, keyB))
	want := fmt.Sprintf(`{"state":"Closed","reason":"Birth","boot":%q,"taint":"%s:NoSchedule","source":"crd"}`, k.boot, keyA)
	if got := node.Annotations[v1alpha1.RecordAnnotationPrefix+"agent"]; got != want || node.Annotations["mine"] != "stays" || node.Spec.Taints[0].Key != "example.com/pool" {
		o.Errorf("the Node was born with %v and %v", node.Annotations, node.Spec.Taints)
	}
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	o.must(k.is("second", isClosed, keyB))
	k.label("fit")
	k.becomes("second", isOpen, keyB)
	if writes := o.nodeWrites("n1"); len(writes) != 2 {
		o.Errorf("the node was written %d times to open twice:\n%v", len(writes), writes)
	}
}

// AKS keeps its own pods on system pools, which are not to be tainted.
func webhookSkips(o *olderEnv) {
	o.serve(1)
	ng := newGate("agent", keyA, byLabel("fit"))
	ng.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{
		{Key: "kubernetes.azure.com/mode", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"system"}},
	}
	o.declare(ng)
	system := o.kubelet("system").newNode()
	system.Labels["kubernetes.azure.com/mode"] = "system"
	o.must(o.admin.Create(o.Context(), system)) // kubelets may not set that label
	o.must(born(system))
	o.must(born(o.kubelet("user").register(), keyA))
}

// A taint of the same key and effect with another value, as of
// --register-with-taints: nodetaintshandler added a second one, and the API
// server refused the node. It registers as it is, and the controller corrects the
// value.
func webhookWrongValue(o *olderEnv) {
	o.serve(1)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	k := o.kubelet("n1")
	node := k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	o.must(born(node, keyA))
	if count(node, keyA) != 1 {
		o.Errorf("the Node was born with %v", node.Spec.Taints)
	}
	o.eventually("the value is the gate's", func() error {
		for _, taint := range k.node().Spec.Taints {
			if taint.Key == keyA && taint.Value == "" {
				return nil
			}
		}
		return errNotYet
	})
}

// One leads and both serve; while one is replaced, births go on being closed.
func everyReplicaServes(o *olderEnv) {
	o.elects = true
	both := o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.eventually("each of them closes births", func() error {
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
		o.eventually("the new one knows the gate", func() error { return o.bornOnce("new", keyA) })
	}
}

// bornOnce registers a node for a moment.
func (o *olderEnv) bornOnce(name string, wantKeys ...string) error {
	node := o.kubelet(name).newNode()
	if err := o.admin.Create(o.Context(), node, client.DryRunAll); err != nil {
		return err
	}
	return born(node, wantKeys...)
}

// Nobody listens, or somebody does and never answers: nodes register all the
// same, open, and nodegate closes them when it sees them.
func webhookUnreachable(o *olderEnv) {
	o.serve(1)
	ng := o.declare(newGate("agent", keyA, byLabel("fit")))
	for name, fail := range map[string]func(){"refused": func() { o.service.use() }, "hung": o.service.hang} {
		fail()
		k := o.kubelet(name)
		node := k.newNode()
		began := time.Now()
		o.must(k.api.Create(o.Context(), node))
		o.must(born(node))
		o.Logf("%s: registered after %s", name, time.Since(began).Round(time.Millisecond))
		k.becomes("agent", isClosed, keyA)
	}
	// An edited gate is proved anew, at once.
	o.edit(ng, func() { ng.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b"} })
	o.eventually("the gate is not Ready", func() error {
		return o.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBirthNotProved)
	})
}

// The guards need no more than this API server has; and the webhook gives nodegate
// no right on any Secret or webhook configuration, not even on its own.
func guardsOnOlder(o *olderEnv) {
	o.serve(1)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	k := o.kubelet("n1")
	k.register()
	forged := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/agent":"{}"}}}`))
	if err := k.api.Patch(o.Context(), k.node(), forged); !apierrors.IsForbidden(err) {
		o.Errorf("a kubelet's change of a record ended with: %v", err)
	}
	config, err := o.cluster.ServiceAccount(o.Context(), installation.Namespace, installation.ServiceAccount)
	o.must(err)
	own, err := client.New(config, client.Options{Scheme: o.admin.Scheme()})
	o.must(err)
	mine, registration := o.secret(), o.registration()
	stolen := registration.DeepCopy()
	stolen.Webhooks[0].ClientConfig.URL, stolen.Webhooks[0].ClientConfig.CABundle = ptr.To("https://attacker.invalid/"), nil
	stolen.Webhooks[0].Rules[0].Resources = []string{"secrets"}
	for what, do := range map[string]func() error{
		"reading the webhook's Secret": func() error { return own.Get(o.Context(), client.ObjectKeyFromObject(mine), mine.DeepCopy()) },
		"listing Secrets": func() error {
			return own.List(o.Context(), &corev1.SecretList{}, client.InNamespace(installation.Namespace))
		},
		"updating the webhook's Secret": func() error { return own.Update(o.Context(), mine.DeepCopy()) },
		"deleting the webhook's Secret": func() error { return own.Delete(o.Context(), mine.DeepCopy()) },
		"reading the registration": func() error {
			return own.Get(o.Context(), client.ObjectKeyFromObject(registration), registration.DeepCopy())
		},
		"patching the registration": func() error { return own.Patch(o.Context(), stolen.DeepCopy(), client.MergeFrom(registration)) },
		"updating the registration": func() error { return own.Update(o.Context(), stolen.DeepCopy()) },
		"deleting the registration": func() error { return own.Delete(o.Context(), registration.DeepCopy()) },
		"creating another one": func() error {
			another := stolen.DeepCopy()
			another.Name, another.ResourceVersion = "another", ""
			return own.Create(o.Context(), another)
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			o.Errorf("%s ended with: %v", what, err)
		}
	}
}

// Where the API server has a certificate for webhooks, replicas answer nobody else.
func onlyTheAPIServer(o *olderEnv) {
	o.known = true
	r := o.serve(1)[0]
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.must(born(o.kubelet("n1").register(), keyA))
	somebody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // who serves is not the point
	response, err := somebody.Post("https://"+r.address+admission.WebhookPath, "application/json", strings.NewReader("{}"))
	if err == nil {
		response.Body.Close()
		o.Errorf("somebody is answered: %s", response.Status)
	}
}

func webhookAfterRestart(o *olderEnv) {
	o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))
	o.must(o.cluster.RestartComponent(o.Context(), testcluster.APIServer))
	for i := range 20 {
		o.must(born(o.kubelet(fmt.Sprintf("n%02d", i)).register(), keyA))
	}
}

// Serving certificate and authority are replaced while nodes register all the
// time, through both replicas: not one comes in open.
func certificateRotates(o *olderEnv) {
	both := o.serve(2)
	o.declare(newGate("agent", keyA, byLabel("fit")))

	ctx, cancel := context.WithCancel(o.Context())
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	var requests sync.RWMutex // held while a node is being registered
	nodes, open := 0, []error{}
	for worker := range 2 {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				requests.RLock()
				err := o.bornOnce(fmt.Sprintf("n-%d-%d", worker, i), keyA)
				requests.RUnlock()
				mu.Lock()
				if nodes++; err != nil {
					open = append(open, err)
				}
				mu.Unlock()
			}
		})
	}
	born := func(n int) { // so many more
		mu.Lock()
		want := nodes + n
		mu.Unlock()
		o.eventually("nodes are born", func() error {
			mu.Lock()
			defer mu.Unlock()
			if nodes < want {
				return errNotYet
			}
			return nil
		})
	}
	before := o.secret()
	o.certify(true)
	if now := o.secret(); bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) || bytes.Equal(now.Data["ca.crt"], before.Data["ca.crt"]) {
		o.Error("there is no other authority, or no other serving certificate")
	}
	for _, r := range both {
		o.eventually("the new certificate is served", func() error { return o.serves(r) })
	}
	for range 5 { // new connections meet the new certificate
		born(10)
		requests.Lock() // what is under way when a connection breaks, no webhook can save
		o.service.cut()
		requests.Unlock()
	}
	cancel()
	running.Wait()
	for _, err := range open {
		o.Error(err)
	}
	o.Logf("%d nodes were born, %d of them not closed", nodes, len(open))
	if bundle := o.registration().Webhooks[0].ClientConfig.CABundle; bytes.Count(bundle, []byte("BEGIN")) != 2 {
		o.Errorf("the old authority is not trusted any more:\n%s", bundle)
	}
}

// serves tells whether a replica serves with what the Secret has.
func (o *olderEnv) serves(r *replica) error {
	connection, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it looks at the certificate itself
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
