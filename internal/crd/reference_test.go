// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"os"
	"strings"
	"testing"
)

// TestReferenceExamples has the API server look at the examples of the API's
// reference. What this version refuses because it is not built yet is no fault
// of an example.
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
	for path, example := range examples {
		if strings.Contains("\n"+example, "\ncloseWhen:") {
			example = "openWhen: null\n" + example
		}
		for _, cause := range causes(t, ask(t, document(t, example))) {
			if !strings.Contains(cause.Message, "is not built yet in this version of nodegate") {
				t.Errorf("%s: %s: %s\n%s", path, cause.Field, cause.Message, example)
			}
		}
	}
}
