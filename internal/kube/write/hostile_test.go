// SPDX-License-Identifier: Apache-2.0

package write

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// A kubelet can fill its Node so that nothing can be written to it. That the API server rejects
// such writes must not look as if it did not answer.
func TestWriterTooLarge(t *testing.T) {
	s := kubetest.Start(t)
	w, err := NewWriter(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	facts := nodestore.New(nodestore.Options{})
	t.Run("operations", func(t *testing.T) {
		n := facts.Convert(s.Node(t, "operations"))
		n.HasAnnotations, n.Records = true, make(map[string]string)
		d := &gate.Decision{Records: make(map[string]string)}
		for i := range 5100 { // each takes two operations, and an API server accepts 10,000
			name := fmt.Sprint("g", i)
			n.Records[name], d.Records[name] = "x", ""
		}
		if _, err := w.Apply(t.Context(), n, d); !errors.Is(err, ErrRejected) {
			t.Errorf("a patch with too many operations: %v", err)
		}
	})
	t.Run("object", func(t *testing.T) {
		const most = 3 << 19 // bytes of a request that etcd accepts
		s.Node(t, "object")
		full := corev1.NodeCondition{Type: "Full", Status: corev1.ConditionTrue, Message: strings.Repeat("x", most-50_000)}
		body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{full}}})
		if err != nil {
			t.Fatal(err)
		}
		node, err := s.CoreV1().Nodes().Patch(t.Context(), "object", types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		d := &gate.Decision{Records: map[string]string{"g": strings.Repeat("x", 100_000)}}
		if _, err := w.Apply(t.Context(), facts.Convert(node), d); !errors.Is(err, ErrRejected) {
			t.Errorf("a Node that would be larger than etcd accepts: %v", err)
		}
	})
}

// A kubelet can report a boot ID that is not UTF-8, because Kubernetes does not validate it. A gate
// opens on such a node, and the record is that of the node's boot when it is read again.
func TestBootIDThatIsNotUTF8(t *testing.T) {
	s := kubetest.Start(t)
	s.Node(t, "binary")
	config := s.Admin()
	config.ContentType = runtime.ContentTypeProtobuf // JSON is always UTF-8
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "binary", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.BootID = "\xff\xfe-1"
	if node, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	facts := nodestore.New(nodestore.Options{})
	n := facts.Convert(node)
	record := gate.Record{State: v1alpha1.StateOpen, Boot: n.BootID}
	written, err := w.Apply(t.Context(), n, &gate.Decision{Records: map[string]string{"g": record.String()}, Verdicts: opening})
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	n = facts.Convert(written)
	if read, err := gate.ParseRecord(n.Records["g"]); err != nil || read.Boot != n.BootID {
		t.Errorf("the boot in the record is %q (%v), that of the node is %q", read.Boot, err, n.BootID)
	}
}

// A test of a patch compares bytes, and the API server escapes in JSON what is not UTF-8, but not a
// genuine replacement character. A patch of the Node and one of its status apply to any boot ID.
func TestPatchOfAnyBootID(t *testing.T) {
	for name, id := range map[string]string{
		"UTF-8": "boot-\u00fc", "replacement character": "boot-\uFFFD", "not UTF-8": "boot-\xff", "both": "\uFFFD\xff\xfe\uFFFD",
	} {
		t.Run(name, func(t *testing.T) {
			node := kubetest.Node("n", "u", func(n *corev1.Node) {
				n.Status.NodeInfo.BootID = id
				n.Annotations = map[string]string{"gate.nodegate.dev/g": "closed"}
			})
			now, err := json.Marshal(node) // encodes as the API server does
			if err != nil {
				t.Fatal(err)
			}
			n := nodestore.New(nodestore.Options{}).Convert(node)
			opening, err := Patch(n, &gate.Decision{Records: map[string]string{"g": "open"}, Verdicts: opening})
			if err != nil {
				t.Fatal(err)
			}
			condition, err := conditionPatch(n, &gate.Decision{Conditions: map[string]*corev1.NodeCondition{"g": {Type: "deadline.nodegate.dev/g"}}})
			if err != nil {
				t.Fatal(err)
			}
			for what, raw := range map[string][]byte{"opening": opening, "condition": condition} {
				patch, err := jsonpatch.DecodePatch(raw)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := patch.Apply(now); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// A kubelet can register with many taints. The workers that compose patches for it also compose
// those for all other nodes, so the time grows linearly: with these numbers, comparing each with
// each takes minutes.
func TestPatchOfManyTaints(t *testing.T) {
	n := &gate.Node{Name: "n", UID: "u"}
	for i := range 200_000 {
		n.Taints = append(n.Taints, corev1.Taint{Key: fmt.Sprint("k", i), Effect: corev1.TaintEffectNoSchedule})
	}
	// The first taint goes, the last one gets a value, and another one comes.
	d := &gate.Decision{Taints: append(slices.Clone(n.Taints[1:]), ours)}
	d.Taints[len(d.Taints)-2].Value = "x"
	raw, err := Patch(n, d)
	if err != nil {
		t.Fatal(err)
	}
	var ops []operation
	if err := json.Unmarshal(raw, &ops); err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, o := range ops {
		if o.Op != "test" {
			changes = append(changes, o.Op+" "+o.Path)
		}
	}
	if want := []string{"add /spec/taints/199999/value", "remove /spec/taints/0", "add /spec/taints/-"}; !slices.Equal(changes, want) {
		t.Errorf("%v, want %v", changes, want)
	}
}
