// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nodegate/nodegate/bench/scene"
)

// A heartbeat changes only the heartbeat times of all conditions.
func TestHeartbeatPatch(t *testing.T) {
	then := time.Unix(1700000000, 0).UTC()
	before, after := scene.Node("node", then), scene.Node("node", then)
	later := scene.Node("node", then.Add(10*time.Second))
	for i := range after.Status.Conditions {
		after.Status.Conditions[i].LastHeartbeatTime = later.Status.Conditions[i].LastHeartbeatTime
	}
	after.Status.NodeInfo = before.Status.NodeInfo // of its own each time
	patch, err := heartbeatPatch(later.Status.Conditions)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(raw, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want corev1.Node
	raw, err = json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	for text, node := range map[string]*corev1.Node{string(patched): &got, string(raw): &want} {
		if err := json.Unmarshal([]byte(text), node); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patched with %s it differs (-want +got):\n%s", patch, diff)
	}
}
