// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodegate/nodegate/bench/fixture"
)

// The API server must be able to decode stored objects. It sets the resource version.
func TestStoredNode(t *testing.T) {
	node := fixture.Node("n", time.Unix(1, 0))
	node.ResourceVersion = "7"
	stored, err := Store(node)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Key != "/registry/minions/n" {
		t.Errorf("key %s", stored.Key)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored.Value, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := node.DeepCopy()
	want.ResourceVersion, want.Kind, want.APIVersion = "", "Node", "v1"
	if !equality.Semantic.DeepEqual(want, object) {
		t.Errorf("decoded as another node:\n%v", object)
	}
	if node.ResourceVersion != "7" || node.Kind != "" {
		t.Error("Store has changed its argument")
	}
	if size := len(stored.Value); size < 8<<10 || size > 16<<10 {
		t.Errorf("a node has %d bytes, which is unlike nodes of real clusters", size)
	}
	if len(node.Labels) != 40 || len(node.Status.Conditions) != 5 || len(node.Status.Images) != 50 {
		t.Errorf("%d labels, %d conditions, %d images", len(node.Labels), len(node.Status.Conditions), len(node.Status.Images))
	}
}

func TestSpeed(t *testing.T) {
	if got := (Speed{Objects: 5000, Took: 620 * time.Millisecond}).String(); got != "5000 in 0.62 s" {
		t.Error(got)
	}
}
