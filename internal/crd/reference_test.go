// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestReferenceExamples checks that the API server accepts the examples in the API
// reference. It accepts the example of a status when it is written like the controller
// does, and stores it completely.
func TestReferenceExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{}
	parse(t, string(text), &examples)
	if len(examples) == 0 {
		t.Fatal("there are no examples")
	}
	ask := server(t)
	checkStatus(t, examples["status"])
	delete(examples, "status")
	for path, example := range examples {
		if strings.Contains("\n"+example, "\ncloseWhen:") {
			example = "openWhen: null\n" + example
		}
		for _, cause := range causes(t, ask(t, document(t, example))) {
			t.Errorf("%s: %s: %s\n%s", path, cause.Field, cause.Message, example)
		}
	}
}

// checkStatus writes the status of a gate and checks what is stored.
func checkStatus(t *testing.T, example string) {
	t.Helper()
	client := connect(t)
	_, err := create(t, client, document(t, named("reference")))
	if err != nil {
		t.Fatal(err)
	}
	defer remove(t, client, "reference")
	var want, got struct {
		Status map[string]any `json:"status"`
	}
	parse(t, example, &want)
	body, err := client.Patch(types.MergePatchType).Resource("nodegates").Name("reference").SubResource("status").
		Param("fieldValidation", "Strict").
		Body(asJSON(t, want)).Do(t.Context()).Raw()
	if err := result(body, err); err != nil {
		t.Fatalf("%v\n%s", err, example)
	}
	if err := json.Unmarshal(body, &got); err != nil || len(want.Status) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("the status\n%v\nis stored as\n%v (%v)", want, got, err)
	}
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
