// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/ext"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// The variables that expressions can use.
const (
	labelsVariable      = "labels"
	annotationsVariable = "annotations"
	conditionsVariable  = "conditions"
	taintsVariable      = "taints"
	allocatableVariable = "allocatable"
	nodeInfoVariable    = "nodeInfo"
	createdVariable     = "created"
)

// The types of the variables' elements. Their fields have the same names as in the API.
const (
	conditionName = "nodegate.Condition"
	taintName     = "nodegate.Taint"
	nodeInfoName  = "nodegate.NodeInfo"
)

// language is the CEL environment of the Kubernetes 1.37 API server, without the
// authorizer library, which would perform I/O.
var language = []cel.EnvOption{
	cel.HomogeneousAggregateLiterals(),
	cel.EagerlyValidateDeclarations(true),
	cel.DefaultUTCTimeZone(true),
	cel.CrossTypeNumericComparisons(true),
	cel.OptionalTypes(),
	cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
	cel.ASTValidators(
		cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(),
		cel.ValidateHomogeneousAggregateLiterals(),
	),
	ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(), ext.Lists(ext.ListsVersion(3)),
	library.Lists(library.ListsVersion(1)), library.URLs(), library.Regex(), library.Quantity(),
	library.IP(), library.CIDR(), library.Format(), library.SemverLib(library.SemverVersion(1)),
}

var variables = []cel.EnvOption{
	cel.Variable(labelsVariable, cel.MapType(cel.StringType, cel.StringType)),
	cel.Variable(annotationsVariable, cel.MapType(cel.StringType, cel.StringType)),
	cel.Variable(conditionsVariable, cel.ListType(cel.ObjectType(conditionName))),
	cel.Variable(taintsVariable, cel.ListType(cel.ObjectType(taintName))),
	cel.Variable(allocatableVariable, cel.MapType(cel.StringType, apiservercel.QuantityType)),
	cel.Variable(nodeInfoVariable, cel.ObjectType(nodeInfoName)),
	cel.Variable(createdVariable, cel.TimestampType),
}

// nodeInfoFields are the fields of a Node's status.nodeInfo that expressions can use.
var nodeInfoFields = []string{
	"architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeletVersion",
	"machineID", "operatingSystem", "osImage", "systemUUID",
}

// environment returns the CEL environment. It is created only once, because that takes
// milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	env, err := boundedLanguage()
	if err != nil {
		return nil, err
	}
	typed, err := apiservercel.NewDeclTypeProvider(
		object(conditionName, fieldsOf(conditionFields)), object(taintName, fieldsOf(taintFields)),
		object(nodeInfoName, texts(nodeInfoFields)),
	).EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	if env, err = env.Extend(typed...); err != nil {
		return nil, err
	}
	return env.Extend(append(variables, cel.CustomTypeAdapter(&adapter{env.CELTypeAdapter()}))...)
})

// boundedLanguage returns the CEL environment of the language without variables. Its
// functions do only work that costs at most CostLimit, and return ordered maps.
func boundedLanguage() (*cel.Env, error) {
	env, err := cel.NewEnv(append(slices.Clip(language), boundedQuantities...)...)
	if err != nil {
		return nil, err
	}
	if env, err = orderResults(env); err != nil {
		return nil, err
	}
	return limitWork(env)
}

func object(name string, fields map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(fields))
	for field, of := range fields {
		declared[field] = apiservercel.NewDeclField(field, of, false, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

func texts(names []string) map[string]*apiservercel.DeclType {
	fields := make(map[string]*apiservercel.DeclType, len(names))
	for _, name := range names {
		fields[name] = apiservercel.StringType
	}
	return fields
}
