// SPDX-License-Identifier: Apache-2.0

// Command reference writes references as Markdown. The reference of the NodeGate
// API is based on the CRD, which is generated from the types, on the comments of
// the types' constants, and on examples. The command fails if a field has no
// example, or an example has no field. The reference of kubectl gate is based on
// its commands, and that of the other programs is their help. The command also
// completes the descriptions in the CRD (see describe).
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/cli"
)

func main() {
	definition := flag.String("definition", "internal/crd/nodegate.dev_nodegates.yaml", "the CRD")
	types := flag.String("types", "api/v1alpha1", "the directory with the types")
	examples := flag.String("examples", "docs/reference/examples.yaml", "the file with the examples")
	out := flag.String("out", "docs/reference/nodegate.md", "the reference of the API")
	programs := flag.String("programs", "docs/reference/programs.md", "the reference of the programs")
	verbs := flag.String("verbs", "docs/reference/kubectl-gate.md", "the reference of kubectl gate")
	flag.Parse()
	err := run(*definition, *types, *examples, *out)
	if err == nil {
		err = os.WriteFile(*verbs, writeVerbs(cli.Command()), 0o644)
	}
	if err == nil {
		err = writePrograms(*programs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(file, types, examples, out string) error {
	definition, err := readDefinition(file)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(examples)
	if err != nil {
		return fmt.Errorf("reading examples: %w", err)
	}
	p := &page{unused: map[string]bool{}}
	if err := yaml.UnmarshalStrict(text, &p.examples); err != nil {
		return fmt.Errorf("reading examples: %w", err)
	}
	for path := range p.examples {
		p.unused[path] = true
	}
	if p.enums, err = readEnums(types); err != nil {
		return err
	}
	if err := describe(file, p.enums); err != nil {
		return err
	}
	var content bytes.Buffer
	p.out = &content
	version := definition.Spec.Versions[0]
	properties := version.Schema.OpenAPIV3Schema.Properties
	p.write(definition.Spec.Group+"/"+version.Name, properties["spec"], properties["status"])
	for path := range p.unused {
		p.errs = append(p.errs, fmt.Errorf("%s: the example has no field", path))
	}
	if err := errors.Join(p.errs...); err != nil {
		return err
	}
	if err := os.WriteFile(out, content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	return nil
}
