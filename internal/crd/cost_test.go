// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodegate/nodegate/internal/crd"
)

// Limits of the API server for the estimated costs of one rule and of all rules of a definition
// (pkg/apis/apiextensions/validation in k8s.io/apiextensions-apiserver).
const (
	ruleCostMax  = 10_000_000
	totalCostMax = 100_000_000
)

// costMarginPercent is the part of these limits that must remain. Versions of Kubernetes estimate
// differently, and this package is compiled with one of them. Kubernetes 1.35 does not know that a
// name has at most 253 characters, which adds 2.8% of the limit for the rule about metadata.name.
const costMarginPercent = 8

// The API server rejects a definition whose rules have a higher estimated cost than the limits.
func TestRulesAreCheap(t *testing.T) {
	definition, err := crd.Definition()
	if err != nil {
		t.Fatal(err)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	root, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	costs := ruleCosts(t, "", root, model.SchemaDeclType(root, true), 1)
	slices.SortFunc(costs, func(a, b ruleCost) int { return cmp.Compare(b.cost, a.cost) })
	var total uint64
	var expensive strings.Builder
	for i, r := range costs {
		if total += r.cost; i < 10 {
			fmt.Fprintf(&expensive, "\n%10d  %s", r.cost, r.rule)
		}
		if r.cost > ruleCostMax*(100-costMarginPercent)/100 {
			t.Errorf("%s: the estimated cost is %d, want at most %d%% of %d", r.rule, r.cost, 100-costMarginPercent, ruleCostMax)
		}
	}
	t.Logf("the estimated cost of %d rules is %.1f%% of the limit; the most expensive ones:%s", len(costs), 100*float64(total)/totalCostMax, expensive.String())
	if total > totalCostMax*(100-costMarginPercent)/100 {
		t.Errorf("the estimated cost of all rules is %d, want at most %d%% of %d: lower the bounds of what the most expensive ones read", total, 100-costMarginPercent, totalCostMax)
	}
}

// ruleCost is the estimated cost of a rule for one object.
type ruleCost struct {
	rule string
	cost uint64
}

// ruleCosts returns the costs of all rules of a schema, as the API server estimates them when it
// validates a definition. An object contains the schema's value at most as often as given.
func ruleCosts(t *testing.T, at string, s *schema.Structural, decl *apiservercel.DeclType, times uint64) (all []ruleCost) {
	t.Helper()
	if len(s.XValidations) > 0 {
		env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
		results, err := cel.Compile(s, decl, celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Error != nil {
				t.Fatalf("%s: %v", at, r.Error)
			}
			all = append(all, ruleCost{at + ": " + s.XValidations[i].Rule, r.MaxCost * times})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		child := s.Properties[name]
		escaped, _ := apiservercel.Escape(name)
		if field := decl.Fields[escaped]; field != nil {
			all = append(all, ruleCosts(t, at+"."+name, &child, field.Type, times)...)
		}
	}
	if s.Items != nil {
		all = append(all, ruleCosts(t, at+"[]", s.Items, decl.ElemType, times*atMost(t, at, s.ValueValidation.MaxItems))...)
	}
	if p := s.AdditionalProperties; p != nil && p.Structural != nil {
		all = append(all, ruleCosts(t, at+"[]", p.Structural, decl.ElemType, times*atMost(t, at, s.ValueValidation.MaxProperties))...)
	}
	return all
}

// atMost returns a bound. Status has lists without one, and no rules in them.
func atMost(t *testing.T, at string, most *int64) uint64 {
	t.Helper()
	if most == nil {
		if strings.HasPrefix(at, ".spec") {
			t.Fatalf("%s is not bounded", at)
		}
		return 0
	}
	return uint64(*most)
}
