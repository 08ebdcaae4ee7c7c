// SPDX-License-Identifier: Apache-2.0

package write

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// stored is the part of a Node that the patch of conditions reads and writes.
type stored struct {
	Metadata struct {
		UID         types.UID         `json:"uid"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		NodeInfo   corev1.NodeSystemInfo  `json:"nodeInfo"`
		Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	} `json:"status"`
}

func store(record string, conditions ...string) (n stored) {
	n.Metadata.UID, n.Status.NodeInfo.BootID = "u", "boot"
	if record != "" {
		n.Metadata.Annotations = map[string]string{"gate.nodegate.dev/g": record}
	}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(c)})
	}
	return n
}

// facts returns the node as it is decided about.
func (n stored) facts() *gate.Node {
	out := &gate.Node{Name: "n", UID: n.Metadata.UID, BootID: n.Status.NodeInfo.BootID, HasAnnotations: len(n.Metadata.Annotations) > 0, Records: map[string]string{}}
	if record, exists := n.Metadata.Annotations["gate.nodegate.dev/g"]; exists {
		out.Records["g"] = record
	}
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, gate.Condition{Type: string(c.Type), Status: c.Status})
	}
	return out
}

// A patch writes or removes the condition on the node that was decided about, and does not
// apply if the node has changed in a way that matters.
func TestConditionPatch(t *testing.T) {
	const ours = "deadline.nodegate.dev/g"
	publish := &corev1.NodeCondition{Type: ours, Status: corev1.ConditionTrue}
	for name, c := range map[string]struct {
		read, now stored
		condition *corev1.NodeCondition
		want      []string // nil if the patch does not apply
	}{
		"written":                        {store("r", "Ready"), store("r", "Ready"), publish, []string{ours, "Ready"}},
		"another condition was appended": {store("r", "Ready"), store("r", "Ready", "Disk"), publish, []string{ours, "Ready", "Disk"}},
		"the first condition":            {store("r"), store("r"), publish, []string{ours}},
		"replaced":                       {store("r", "Ready", ours), store("r", "Ready", ours), publish, []string{ours, "Ready"}},
		"removed":                        {store("r", "Ready", ours, "Disk"), store("r", "Ready", ours, "Disk"), nil, []string{"Ready", "Disk"}},
		"removed without a record":       {store("", ours, "Ready"), store("", ours, "Ready"), nil, []string{"Ready"}},
		"another replica has written it": {store("r", "Ready"), store("r", ours, "Ready"), publish, nil},
		"the same, the first condition":  {store("r"), store("r", ours), publish, nil},
		"another replica has removed it": {store("r", ours, "Ready"), store("r", "Ready"), nil, nil},
		"the record has changed":         {store("r", "Ready"), store("opened", "Ready"), publish, nil},
		"the record was removed":         {store("r", ours, "Ready"), store("", ours, "Ready"), nil, nil},
		"a record was written":           {store("", ours, "Ready"), store("r", ours, "Ready"), nil, nil},
		"the node has rebooted":          {store("r", "Ready"), func() stored { n := store("r", "Ready"); n.Status.NodeInfo.BootID = "new"; return n }(), publish, nil},
		"another node of the same name":  {store("r", "Ready"), func() stored { n := store("r", "Ready"); n.Metadata.UID = "v"; return n }(), publish, nil},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := conditionPatch(c.read.facts(), &gate.Decision{Conditions: map[string]*corev1.NodeCondition{"g": c.condition}})
			if err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(raw)
			if err != nil {
				t.Fatal(err)
			}
			before, err := json.Marshal(c.now)
			if err != nil {
				t.Fatal(err)
			}
			after, err := patch.Apply(before)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error %v, want conditions %v", err, c.want)
			}
			if err != nil {
				return
			}
			var got stored
			if err := json.Unmarshal(after, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Status.Conditions) != len(c.want) {
				t.Fatalf("conditions %v, want %v", got.Status.Conditions, c.want)
			}
			for i, want := range c.want {
				if string(got.Status.Conditions[i].Type) != want {
					t.Errorf("condition %d is %s, want %s", i, got.Status.Conditions[i].Type, want)
				}
			}
		})
	}
	if patch, err := conditionPatch(store("r").facts(), &gate.Decision{}); patch != nil || err != nil {
		t.Errorf("nothing to write: %s, %v", patch, err)
	}
}
