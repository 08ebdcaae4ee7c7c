// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// admitter validates a document: the API server, or this package in its place.
type admitter func(t *testing.T, document []byte) error

func inProcess(_ *testing.T, document []byte) error {
	_, err := crd.Decode(document)
	return err
}

func TestRulesInProcess(t *testing.T) {
	testRules(t, inProcess)
}

// testRules tests every rule of the table.
func testRules(t *testing.T, admit admitter) {
	for i, r := range rules {
		t.Run(fmt.Sprintf("%d/%s", i, r.at), func(t *testing.T) {
			kept, broken := causes(t, admit(t, document(t, r.keep))), causes(t, admit(t, document(t, r.breaks)))
			if len(kept) > 0 {
				t.Errorf("%s\nmust be accepted, but is rejected: %v", r.keep, kept)
			}
			if !slices.ContainsFunc(broken, r.refuses) || len(effective(broken)) != 1 {
				t.Errorf("%s\nmust be rejected with\n%s: %s\ngot\n%v", r.breaks, r.at, r.message, broken)
			}
		})
	}
}

// refuses reports whether the cause is this rule's rejection.
func (r rule) refuses(cause metav1.StatusCause) bool {
	return cause.Field == r.at && strings.HasSuffix(cause.Message, r.message)
}

// effective removes the remark that other rules were not checked.
func effective(list []metav1.StatusCause) []metav1.StatusCause {
	return slices.DeleteFunc(slices.Clone(list), func(c metav1.StatusCause) bool {
		return strings.Contains(c.Message, "some validation rules were not checked")
	})
}

// causes returns the causes of an API error.
func causes(t *testing.T, err error) []metav1.StatusCause {
	t.Helper()
	if err == nil {
		return nil
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("want the error Invalid, got: %v", err)
	}
	return status.Status().Details.Causes
}

// document merges the fields into base.
func document(t *testing.T, fields string) []byte {
	t.Helper()
	gate := map[string]any{}
	parse(t, base, &gate)
	if strings.HasPrefix(fields, "- ") {
		fields = "openWhen:\n" + fields
	}
	over := map[string]any{}
	parse(t, fields, &over)
	if meta, ok := over["metadata"]; ok {
		gate["metadata"] = meta
	} else {
		spec := gate["spec"].(map[string]any)
		maps.Copy(spec, over)
		maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	}
	data, err := yaml.Marshal(gate)
	if err != nil {
		t.Fatalf("writing a gate: %v", err)
	}
	return data
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
}

// TestEveryRuleIsInTheTable checks that the table contains every CEL rule of the
// definition.
func TestEveryRuleIsInTheTable(t *testing.T) {
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		for _, celRule := range schema.XValidations {
			if !slices.ContainsFunc(rules, func(r rule) bool { return strings.HasSuffix(r.message, celRule.Message) }) {
				t.Errorf("%s: rule %q has no row in the table", path, celRule.Message)
			}
		}
	})
}

// The rule about the kinds of object signals contains all protected kinds.
func TestProtectedKindsAreInTheRule(t *testing.T) {
	var kinds []string
	for _, p := range v1alpha1.ProtectedKinds() {
		kinds = append(kinds, fmt.Sprintf("'%s/%s'", p.Group, p.Kind))
	}
	want, found := "in ["+strings.Join(kinds, ", ")+"])", 0
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		for _, celRule := range schema.XValidations {
			if strings.Contains(celRule.Rule, "/Secret'") {
				if found++; !strings.HasSuffix(celRule.Rule, want) {
					t.Errorf("%s: the rule is\n%s\nwant the end\n%s", path, celRule.Rule, want)
				}
			}
		}
	})
	if found != 4 {
		t.Errorf("%d rules, want one for each list of signals, and for each anyOf", found)
	}
}

// The rule about taint keys contains all keys that affect every gate.
func TestKeysThatAffectAllGatesAreInTheRule(t *testing.T) {
	want, found := "!(self in ['"+strings.Join(append(v1alpha1.SetupTaintKeys(), v1alpha1.TaintCloudShutdown), "', '")+"'])", 0
	crdtest.Walk(t, func(_ string, schema *apiextensionsv1.JSONSchemaProps) {
		if slices.ContainsFunc(schema.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == want }) {
			found++
		}
	})
	if found != 2 {
		t.Errorf("%d fields have the rule %s, want taint.key and recloseTaint.key", found, want)
	}
}

// TestEveryFieldIsDescribed checks that every field has a description for kubectl
// explain.
func TestEveryFieldIsDescribed(t *testing.T) {
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if schema.Description == "" && !strings.HasSuffix(path, ".metadata") && !strings.HasSuffix(path, "]") {
			t.Errorf("%s has no description", path)
		}
	})
}

// TestEveryListIsBounded checks that every list and every text has an upper bound. Without it, the
// API server could reject the definition because of the cost of its rules, and a status could grow
// until etcd rejects it.
func TestEveryListIsBounded(t *testing.T) {
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		switch {
		case !strings.HasPrefix(path, ".spec.") && !strings.HasPrefix(path, ".status."), schema.Format == "date-time":
		case schema.Type == "array" && schema.MaxItems == nil,
			schema.AdditionalProperties != nil && schema.MaxProperties == nil,
			schema.Type == "string" && schema.MaxLength == nil && len(schema.Enum) == 0,
			schema.XIntOrString && schema.MaxLength == nil:
			t.Errorf("%s has no upper bound", path)
		}
	})
}

func TestDecodeRefusesWhatIsNotAGate(t *testing.T) {
	for _, test := range []struct{ name, document, message string }{
		{"unknown field", base + "  colour: red\n", `strict decoding error: unknown field "spec.colour"`},
		{"unknown metadata", strings.Replace(base, "name: example", "name: example\n  colour: red", 1), `strict decoding error: unknown field "metadata.colour"`},
		{"a namespace that is a number", strings.Replace(namespaced, "kube-system", "1", 1), "cannot unmarshal number into Go struct field ObjectMeta.namespace"},
		{"duplicate field", base + "  nodeSelector: {}\n", `"nodeSelector" already set in map`},
		{"empty", "", "the document is empty; write one NodeGate"},
		{"not a map", "- a", "the document has no fields; write a NodeGate in YAML or JSON, as 'kubectl get nodegates -o yaml' prints it"},
		{"a table", "NAME MODE READY\ncilium Enforce True\n", "the document has no fields; "},
		{"not YAML", "a: b: c", "parsing YAML: "},
		{"another kind", "{apiVersion: v1, kind: Node}", "the document is not a NodeGate; set apiVersion: nodegate.dev/v1alpha1 and kind: NodeGate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := crd.Decode([]byte(test.document))
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got error %v, want BadRequest with %q", err, test.message)
			}
		})
	}
}

func TestDecodeNeedsAName(t *testing.T) {
	for _, nameless := range []string{string(document(t, "metadata: {}")), strings.Replace(base, "metadata:\n  name: example\n", "", 1)} {
		_, err := crd.Decode([]byte(nameless))
		if got := effective(causes(t, err)); len(got) != 1 || got[0].Field != "metadata.name" {
			t.Errorf("%s\ngot %v, want an error about metadata.name", nameless, got)
		}
	}
}

// namespaced is a gate with a namespace, which Kustomize adds to objects of kinds that it does not know.
var namespaced = strings.Replace(base, "name: example", "name: example\n  namespace: kube-system", 1)

func TestDecodeIgnoresTheNamespace(t *testing.T) {
	if gate, err := crd.Decode([]byte(namespaced)); err != nil || gate.Namespace != "" {
		t.Errorf("gate %+v, error %v", gate, err)
	}
}

// The remark about rules that were not checked belongs to no field, and the message names none.
func TestMessageOfUncheckedRules(t *testing.T) {
	const want = `NodeGate.nodegate.dev "example" is invalid: [spec.taint: Required value, ` +
		"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]"
	_, err := crd.Decode([]byte(strings.Replace(base, "  taint: {key: example.com/not-ready, effect: NoSchedule}\n", "", 1)))
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestDecodeSetsDefaults(t *testing.T) {
	gate, err := crd.Decode(document(t, pods("namespace: a")))
	if err != nil {
		t.Fatal(err)
	}
	checkDefaults(t, gate)
	if err := crd.Validate(gate); err != nil {
		t.Errorf("a decoded gate is not valid: %v", err)
	}
}

// withLabels is a gate in which every kind of label selector has the label "a" with %[1]s as its
// value.
const withLabels = `
nodeSelector: {matchLabels: {a: %[1]s}}
openWhen:
- {name: a, daemonSets: {namespaces: [a], selector: {matchLabels: {a: %[1]s}}}}
- {name: b, pods: {namespace: a, selector: {matchLabels: {a: %[1]s, b: c}}}}
- {name: c, completed: {namespace: a, selector: {matchLabels: {a: %[1]s, b: c}}}}
- {name: d, object: {version: v1, kind: A, expression: 'true', matchLabels: {a: %[1]s}}}
- {name: e, anyOf: [{name: a, pods: {namespace: a, selector: {matchLabels: {a: %[1]s, b: c}}}}, {name: b, label: {key: a}}]}
`

// A label value of null means the empty value, as in the label selectors of Kubernetes. If the
// label were removed instead, the selector would select more objects.
func TestDecodeReadsNullLabelValuesAsEmpty(t *testing.T) {
	null, err := crd.Decode(document(t, fmt.Sprintf(withLabels, "null")))
	if err != nil {
		t.Fatal(err)
	}
	checkNullLabelValues(t, null)
}

// checkNullLabelValues checks a gate that was decoded from withLabels and null.
func checkNullLabelValues(t *testing.T, null *v1alpha1.NodeGate) {
	t.Helper()
	empty, err := crd.Decode(document(t, fmt.Sprintf(withLabels, `""`)))
	if err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(null.Spec, empty.Spec) {
		t.Errorf("with null, the spec is\n%s\nwith an empty value\n%s", text(t, null.Spec), text(t, empty.Spec))
	}
}

func text(t *testing.T, value any) []byte {
	t.Helper()
	data, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A gate that was exported from a cluster has a status, which says nothing about the document.
func TestDecodeDropsTheStatus(t *testing.T) {
	with := "status: {conditions: [{type: Accepted, status: 'False', reason: InvalidSpec, message: x, lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n"
	gate, err := crd.Decode(append(document(t, pods("namespace: a")), with...))
	if err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(gate.Status, v1alpha1.NodeGateStatus{}) {
		t.Errorf("the status is %+v", gate.Status)
	}
}

// checkDefaults checks a gate with one pods signal that has only required fields.
func checkDefaults(t *testing.T, gate *v1alpha1.NodeGate) {
	t.Helper()
	spec, pods := gate.Spec, gate.Spec.OpenWhen[0].Pods
	for _, check := range []struct{ field, got, want any }{
		{"mode", spec.Mode, v1alpha1.ModeEnforce},
		{"reopen", spec.Reopen, v1alpha1.ReopenAutomatic},
		{"bypassedPods", spec.BypassedPods, v1alpha1.BypassedIgnore},
		{"timing", spec.Timing, v1alpha1.Timing{CloseAfterSeconds: new(int32(120)), RolloutGraceSeconds: new(int32(600))}},
		{"budget.maxReclosed", spec.Budget.MaxReclosed.String(), "20%"},
		{"pods.readyBy", pods.ReadyBy, v1alpha1.ReadyByCondition},
		{"pods.require", pods.Require, v1alpha1.RequireAny},
		// These fields are only for openWhen gates, so a default would conflict with
		// closeWhen. Unset means OnReboot and Ignore.
		{"reclosePolicy", spec.ReclosePolicy, v1alpha1.ReclosePolicy("")},
		{"existingNodes", spec.ExistingNodes, v1alpha1.ExistingNodes("")},
	} {
		if !apiequality.Semantic.DeepEqual(check.got, check.want) { // timing has pointers
			t.Errorf("default of %s: got %v, want %v", check.field, check.got, check.want)
		}
	}
}

func TestValidateDoesNotModifyTheGate(t *testing.T) {
	gate := &v1alpha1.NodeGate{}
	gate.Name = "example"
	gate.Spec.Taint = v1alpha1.Taint{Key: "example.com/not-ready", Effect: "NoSchedule"}
	before := gate.DeepCopy()
	got := causes(t, crd.Validate(gate))
	want := "set exactly one of openWhen (closed until its signals hold) and closeWhen (closed while its signals hold)"
	if len(got) != 1 || !strings.HasSuffix(got[0].Message, want) {
		t.Errorf("got %v, want %q", got, want)
	}
	if gate.Spec.Mode != before.Spec.Mode || gate.Kind != before.Kind {
		t.Errorf("the gate was changed to %+v", gate)
	}
}

// FuzzDecode searches for documents that make the rules panic, and for gates that are
// valid when decoded but not afterwards.
func FuzzDecode(f *testing.F) {
	// The rules are compiled here because an input that takes 10 seconds is considered
	// to hang.
	if _, err := crd.Decode([]byte(base)); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(base))
	f.Add([]byte("{apiVersion: nodegate.dev/v1alpha1, kind: NodeGate}"))
	f.Add([]byte("{apiVersion: nodegate.dev/v1alpha1, kind: NodeGate, metadata: {name: a}, spec: {openWhen: [{name: a, condition: {typePattern: '('}}]}}"))
	f.Fuzz(func(t *testing.T, document []byte) {
		gate, err := crd.Decode(document)
		if err != nil {
			return
		}
		if err := crd.Validate(gate); err != nil {
			t.Errorf("valid when decoded, but not afterwards: %v", err)
		}
	})
}
