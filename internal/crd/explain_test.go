// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// 'kubectl explain' prints descriptions, but neither defaults nor the comments of the
// types' constants. A user who has no other documentation finds both there.
func TestDescriptionsContainDefaultsAndValues(t *testing.T) {
	found := 0
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if !strings.HasPrefix(path, ".spec.") {
			return
		}
		if value, ok := scalar(schema.Default); ok {
			found++
			if want := "Defaults to " + value + "."; !strings.Contains(schema.Description, want) {
				t.Errorf("%s: the description does not contain %q:\n%s", path, want, schema.Description)
			}
		}
		values := schema.Enum
		switch {
		case schema.Items != nil:
			values = schema.Items.Schema.Enum
		case strings.HasSuffix(path, "[]"):
			values = nil // the description of the list contains them
		}
		for _, raw := range values {
			found++
			if value, _ := scalar(&raw); !strings.Contains(schema.Description, value) {
				t.Errorf("%s: the description does not explain %s:\n%s", path, value, schema.Description)
			}
		}
	})
	if found == 0 {
		t.Error("there are no defaults and no values")
	}
}

// Lines of the comments are up to 80 characters wide. 'kubectl explain' indents them, and
// would break each of them once more, so a paragraph is one line.
func TestDescriptionsAreNotWrapped(t *testing.T) {
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		for paragraph := range strings.SplitSeq(schema.Description, "\n\n") {
			for i, line := range strings.Split(paragraph, "\n") {
				if i > 0 && !strings.HasPrefix(line, " - ") {
					t.Errorf("%s: a paragraph is wrapped:\n%s", path, paragraph)
					break
				}
			}
		}
	})
}

func TestDescriptionOfAnEnumeration(t *testing.T) {
	const want = `reopen specifies whether a closed closeWhen gate opens automatically when one of its signals no longer holds, ` +
		`or only when a user removes the taint (kubectl taint node <node> <key>-). ` +
		`A gate that a user opened does not close again until at least one of its signals has stopped holding. Manual requires closeWhen.

Defaults to Automatic.

Possible enum values:
 - ` + "`\"Automatic\"`" + ` opens the gate when its signals no longer all hold.
 - ` + "`\"Manual\"`" + ` keeps the gate closed until a user removes the taint.`
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if path == ".spec.reopen" && schema.Description != want {
			t.Errorf("the description is\n%s\nwant\n%s", schema.Description, want)
		}
	})
}

// scalar returns a string, number or boolean as a user writes it.
func scalar(raw *apiextensionsv1.JSON) (string, bool) {
	if raw == nil || strings.ContainsAny(string(raw.Raw[:1]), "{[") {
		return "", false
	}
	var text string
	if json.Unmarshal(raw.Raw, &text) != nil {
		text = string(raw.Raw)
	}
	return text, text != ""
}
