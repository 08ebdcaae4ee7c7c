// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// A gate is stored in a format of another CRD version, which this version cannot decode. The
// gate reports it, stays closed on its nodes, and still closes on new nodes. Other gates are
// not affected. This holds whether or not nodegate has decoded the gate before.
func TestGateThatCannotBeRead(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("fine", keyA, byLabel("fit")))
	e.declare(newGate("odd", keyB, byLabel("fit")))
	all := e.registered("before", "meanwhile")
	restore := e.redefine()
	e.setGrace("odd", `"soon"`)
	restore()
	e.eventually("the gate reports that it cannot be read", func() error { return e.saysUnreadable("odd", "rolloutGraceSeconds") })

	all[0].label("fit")
	all[0].becomes("fine", isOpen, keyA)
	stop()
	e.startController(0)
	all[1].label("fit")
	all[1].becomes("fine", isOpen, keyA)
	born := e.registered("born")[0]
	born.label("fit")
	born.becomes("fine", isOpen, keyA)
	for _, k := range append(all, born) { // the controller reconciles all gates of a node together
		e.must(k.is("odd", isClosed, keyB))
	}
	e.must(e.saysUnreadable("odd", "rolloutGraceSeconds"))

	reader, err := read.NewReader(e.cluster.Admin())
	e.must(err)
	gates, err := reader.Gates(e.Context())
	e.must(err)
	if len(gates) != 2 || gates[0].ReadError != "" || gates[1].ReadError == "" || gates[1].Spec.Taint.Key != keyB {
		t.Errorf("a one-shot read returns %+v", gates)
	}

	e.setGrace("odd", "600")
	for _, k := range append(all, born) {
		k.becomes("odd", isOpen, keyB)
	}
	e.inForce("odd")
}

// redefine changes the CRD so that timing.rolloutGraceSeconds may have any value, until the
// CRD is restored.
func (e *env) redefine() (restore func()) {
	e.Helper()
	set := func(schema string) {
		e.Helper()
		const at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/timing/properties/rolloutGraceSeconds"
		e.must(e.tryPatch("apiextensions.k8s.io/v1", "CustomResourceDefinition", v1alpha1.Resource.Resource+"."+v1alpha1.GroupName,
			types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, at, schema)))
	}
	definition, err := crd.Definition()
	e.must(err)
	was, err := json.Marshal(definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["timing"].Properties["rolloutGraceSeconds"])
	e.must(err)
	restore = func() { set(string(was)) }
	e.Cleanup(restore)
	set(`{"x-kubernetes-preserve-unknown-fields":true}`)
	return restore
}

// setGrace sets a gate's rolloutGraceSeconds once the API server accepts the value.
func (e *env) setGrace(name, value string) {
	e.Helper()
	e.eventually("the API server accepts the edit", func() error {
		return e.tryPatch(v1alpha1.GroupVersion.String(), "NodeGate", name, types.MergePatchType, `{"spec":{"timing":{"rolloutGraceSeconds":`+value+`}}}`)
	})
}

// tryPatch patches an object without its Go type, also after the test has ended.
func (e *env) tryPatch(version, kind, name string, how types.PatchType, patch string) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetName(name)
	return e.admin.Patch(context.WithoutCancel(e.Context()), o, client.RawPatch(how, []byte(patch)))
}

// saysUnreadable verifies the condition of a gate that cannot be decoded. It reads the gate
// as an unstructured object.
func (e *env) saysUnreadable(name, text string) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind("NodeGate")
	if err := e.admin.Get(e.Context(), client.ObjectKey{Name: name}, o); err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		c := c.(map[string]any)
		message, _ := c["message"].(string)
		if c["type"] == v1alpha1.ConditionAccepted && c["status"] == "False" && c["reason"] == v1alpha1.ReasonInvalidSpec &&
			strings.Contains(message, "cannot read") && strings.Contains(message, text) {
			return nil
		}
	}
	return fmt.Errorf("conditions: %v", conditions)
}
