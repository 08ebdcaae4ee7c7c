// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// What describe appends to a description. No comment has a paragraph that begins like
// these.
const (
	defaultPrefix = "\n\nDefaults to "
	valuesHeading = "\n\nPossible enum values:"
)

// describe changes the descriptions in the definition, because 'kubectl explain' prints
// only them: it appends the default and the values with their meanings, as in the
// descriptions of Kubernetes' own kinds. A paragraph becomes one line, because kubectl
// wraps lines itself.
func describe(file string, enums map[string][]choice) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the definition: %w", err)
	}
	document, err := yaml.YAMLToJSON(text)
	if err != nil {
		return fmt.Errorf("reading the definition: %w", err)
	}
	var definition any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // a float64 would be written in another form
	if err := decoder.Decode(&definition); err != nil {
		return fmt.Errorf("reading the definition: %w", err)
	}
	describeAll(definition, enums)
	if document, err = json.Marshal(definition); err != nil {
		return fmt.Errorf("writing the definition: %w", err)
	}
	if text, err = yaml.JSONToYAML(document); err != nil {
		return fmt.Errorf("writing the definition: %w", err)
	}
	if err := os.WriteFile(file, append([]byte("---\n"), text...), 0o644); err != nil {
		return fmt.Errorf("writing the definition: %w", err)
	}
	return nil
}

func describeAll(node any, enums map[string][]choice) {
	switch node := node.(type) {
	case []any:
		for _, element := range node {
			describeAll(element, enums)
		}
	case map[string]any:
		values, _ := node["enum"].([]any)
		if items, _ := node["items"].(map[string]any); items["enum"] != nil {
			// kubectl prints the descriptions of a list and of its elements one after the other.
			values, _ = items["enum"].([]any)
			delete(items, "description")
		}
		if description, ok := node["description"].(string); ok {
			node["description"] = described(description, node["default"], values, enums)
		}
		for _, value := range node {
			describeAll(value, enums)
		}
	}
}

// described returns the description of a field with this default and these values.
func described(description string, value any, values []any, enums map[string][]choice) string {
	out := text(description)
	switch value.(type) {
	case string, json.Number, bool:
		out += fmt.Sprintf("%s%v.", defaultPrefix, value)
	}
	choices := make([]choice, 0, len(values))
	for _, value := range values {
		choices = append(choices, choice{value: fmt.Sprint(value)})
	}
	documented, ok := enums[enumKey(choices)]
	if !ok {
		return out
	}
	out += valuesHeading
	for _, c := range documented {
		out += fmt.Sprintf("\n - `%q` %s", c.value, c.meaning)
	}
	return out
}

// readDefinition reads the definition from the file.
func readDefinition(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	return definition, nil
}

// comment returns the part of a description that describe did not append.
func comment(description string) string {
	description, _, _ = strings.Cut(description, defaultPrefix)
	description, _, _ = strings.Cut(description, valuesHeading)
	return description
}
