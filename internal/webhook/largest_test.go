// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// largest is the size in bytes that etcd accepts by default.
const largest = 3 << 19

// The webhook closes gates on every Node that the API server and etcd accept, and removes
// forged records, whatever a kubelet fills the Node with to prevent this.
func TestLargestNodes(t *testing.T) {
	labels := make(map[string]string)
	for i := range largest / 16 {
		labels[strconv.FormatInt(int64(i), 16)] = ""
	}
	h := &Handler{Gates: known(twoGates...), Log: testr.New(t)}
	for name, change := range map[string]func(*corev1.Node){
		"characters that JSON escapes": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Message: strings.Repeat("<", largest-1024)}}
		},
		"runtime handlers": func(n *corev1.Node) {
			n.Status.RuntimeHandlers = slices.Repeat([]corev1.NodeRuntimeHandler{{
				Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(bool), UserNamespaces: new(bool)},
			}}, (largest-1024)/10) // each has ten bytes
		},
		"labels": func(n *corev1.Node) { n.Labels = labels },
		// The Node is nested as deeply as encoding/json permits, and the request more deeply.
		"nested field ownership": func(n *corev1.Node) {
			n.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(
				strings.Repeat(`{"f:a":`, 9995) + "{}" + strings.Repeat("}", 9995),
			)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Annotations: map[string]string{v1alpha1.RecordAnnotationPrefix + "a": `{"state":"Open"}`},
			}}
			change(n)
			if n.Size() > largest {
				t.Fatalf("the Node has %d bytes", n.Size())
			}
			body, err := json.Marshal(admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
				Request: &admissionv1.AdmissionRequest{
					UID: "u", Name: n.Name, Operation: admissionv1.Create,
					Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}, Object: runtime.RawExtension{Object: n},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			patch := string(answered(t, ask(t, h, string(body))).Patch)
			if record := strconv.Quote(recordA); !strings.Contains(patch, record) || !strings.Contains(patch, `"key":"example.com/a"`) {
				t.Errorf("a request of %d bytes got the patch %q", len(body), patch)
			}
		})
	}
}
