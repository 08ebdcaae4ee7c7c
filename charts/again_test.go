// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// After Helm has removed the policy and created it again, a running API server closes new nodes
// by the current gates, not by the previous ones (kubernetes/kubernetes#130887). The previous
// parameter stays, as after 'helm uninstall'.
func TestInstallAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "1.37")
	install := func(birth string) {
		t.Helper()
		must(t, w.helm(object{"birth": birth}, "upgrade", "nodegate", chart, "--install", "--create-namespace"))
	}
	install("policy")
	w.closes("node.cilium.io/agent-not-ready")

	install("webhook")
	install("policy")
	w.closes("efs.csi.aws.com/agent-not-ready")

	must(t, w.admin.DeleteAllOf(t.Context(), &v1alpha1.NodeGate{})) // as docs/uninstall.md describes
	must(t, w.helm(nil, "uninstall", "nodegate"))
	install("policy")
	w.closes("ebs.csi.aws.com/agent-not-ready")

	// kubectl and releases of other names can take over what Helm keeps.
	must(t, w.helm(nil, "uninstall", "nodegate"))
	for _, o := range rendered(t, object{"birth": "policy"}) {
		if strings.HasSuffix(o.GetName(), "-anchor") {
			must(t, w.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")))
		}
	}
	if err := w.helm(nil, "install", "other", chart); err == nil || !strings.Contains(err.Error(), `"nodegate-birth-anchor"`) {
		t.Errorf("installing a release of another name: %v: update docs/uninstall.md", err)
	}
	must(t, w.helm(nil, "install", "other", chart, "--take-ownership"))
	w.closes("node.cilium.io/agent-not-ready")
}

// closes writes the parameter as nodegate does, for a gate with this taint, and waits until the
// API server adds this taint to new nodes, and no other.
func (w *world) closes(key string) {
	w.Helper()
	config, err := w.cluster.ServiceAccount(w.Context(), namespace, "nodegate")
	must(w.T, err)
	nodegate, err := client.New(config, client.Options{})
	must(w.T, err)
	entry := admission.Entry{Name: "gate", Taint: v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	parameter := admission.Parameter(namespace, v1alpha1.SourceCRD, []admission.Entry{entry})
	if err := nodegate.Update(w.Context(), parameter); apierrors.IsNotFound(err) {
		must(w.T, nodegate.Create(w.Context(), parameter))
	} else {
		must(w.T, err)
	}
	eventually(w.T, "the API server to close new nodes by the parameter", func(ctx context.Context) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "born"}}
		if err := w.admin.Create(ctx, node, client.DryRunAll); err != nil {
			return err
		}
		var ours []string
		for _, t := range node.Spec.Taints {
			if t.Key != corev1.TaintNodeNotReady { // the API server's own
				ours = append(ours, t.Key)
			}
		}
		if !slices.Equal(ours, []string{key}) {
			return fmt.Errorf("taints %v, want %s", ours, key)
		}
		return nil
	})
}
