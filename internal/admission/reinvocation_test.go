// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/webhook"
)

// TestTaintEditedWhileANodeIsCreated: another webhook is called after nodegate's and
// changes the Node, so the API server reinvokes policies and webhooks that request it.
// Meanwhile, a gate's taint is edited. The Node must keep the first result, so that the
// record names every taint of nodegate's. A reinvocation would add the new taint, and a
// record of only that taint, and the old one would never be removed.
func TestTaintEditedWhileANodeIsCreated(t *testing.T) {
	in := installBirth(t)
	tests := map[string]func(*testing.T, *v1alpha1.NodeGate, metav1.LabelSelector) (edit func(after *v1alpha1.NodeGate)){
		"closed by policy": func(t *testing.T, before *v1alpha1.NodeGate, _ metav1.LabelSelector) func(*v1alpha1.NodeGate) {
			in.close(t, before)
			return func(after *v1alpha1.NodeGate) { in.close(t, after) }
		},
		"closed by webhook": func(t *testing.T, before *v1alpha1.NodeGate, nodes metav1.LabelSelector) func(*v1alpha1.NodeGate) {
			var gates atomic.Pointer[[]gate.Gate]
			set := func(ng *v1alpha1.NodeGate) {
				selector, err := ng.Spec.NodeSelector.AsSelector()
				if err != nil {
					t.Fatal(err)
				}
				gates.Store(&[]gate.Gate{{Name: ng.Name, Source: v1alpha1.SourceCRD, Accepted: true, Selector: selector, Taint: ng.Spec.Taint}})
			}
			set(before)
			in.register(t, admission.WebhookConfiguration(options.Namespace), nodes, &webhook.Handler{Gates: func() ([]gate.Gate, bool) { return *gates.Load(), true }})
			return set
		},
	}
	for name, closing := range tests {
		t.Run(name, func(t *testing.T) {
			mine := metav1.LabelSelector{MatchLabels: label(t)}
			edit := closing(t, newGate("one", "a", mine), mine)
			other := &otherWebhook{asked: make(chan struct{}), goOn: make(chan struct{})}
			configuration := admission.WebhookConfiguration(options.Namespace)
			configuration.Name = "other" // comes after nodegate-birth
			configuration.Webhooks[0].ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
			in.register(t, configuration, mine, other)

			type answer struct {
				node *corev1.Node
				err  error
			}
			answers := make(chan answer, 1)
			go func() {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: otherWants, Labels: mine.MatchLabels}}
				created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
				answers <- answer{created, err}
			}()
			select {
			case <-other.asked:
			case got := <-answers:
				t.Fatalf("the other webhook was not called: %+v", got)
			}
			edit(newGate("one", "b", mine))
			close(other.goOn)
			got := <-answers
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.node.Labels["other"] != "was-here" {
				t.Fatalf("the other webhook did not change the labels: %v", got.node.Labels)
			}
			if diff := cmp.Diff([]corev1.Taint{taintA}, settled(got.node.Spec.Taints, 0)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if record := got.node.Annotations[prefix+"one"]; record != recordA {
				t.Errorf("the record is %s, want %s", record, recordA)
			}
		})
	}
}

// otherWants is the name of the Node that the other webhook changes.
const otherWants = "born"

// otherWebhook is a foreign webhook that labels one Node and answers with a delay.
type otherWebhook struct {
	asked, goOn chan struct{}
}

func (o *otherWebhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if review.Request.Name == otherWants {
		close(o.asked)
		select {
		case <-o.goOn:
		case <-r.Context().Done():
		}
		review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[{"op":"add","path":"/metadata/labels/other","value":"was-here"}]`)
	}
	_ = json.NewEncoder(w).Encode(review)
}

// register makes the API server call the handler for the selected nodes, as configured,
// until the test ends. It returns when the API server calls it.
func (in *installation) register(t *testing.T, configuration *admissionregistrationv1.MutatingWebhookConfiguration, nodes metav1.LabelSelector, handler http.Handler) {
	t.Helper()
	var called atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called.Store(true)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	w := &configuration.Webhooks[0]
	w.ClientConfig = admissionregistrationv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	w.ObjectSelector, w.TimeoutSeconds = &nodes, new(int32(30))
	configurations := in.admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := configurations.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.Background(), configuration.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "await", Labels: nodes.MatchLabels}}
		if _, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun}); err != nil {
			return err
		}
		if !called.Load() {
			return errors.New("the webhook was not called")
		}
		return nil
	})
}
