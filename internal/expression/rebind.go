// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types/ref"
)

// call is the implementation of an overload.
type call func(args ...ref.Val) ref.Val

// rebind returns an environment in which replace replaces the implementations of overloads. It
// returns nil for those that remain.
func rebind(env *cel.Env, replace func(function string, o *decls.OverloadDecl, binding *functions.Overload) call) (*cel.Env, error) {
	var replaced []cel.EnvOption
	for name, function := range env.Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		bound := make(map[string]*functions.Overload, len(bindings))
		for _, b := range bindings {
			bound[b.Operator] = b
		}
		for _, o := range function.OverloadDecls() {
			binding := bound[o.ID()]
			if binding == nil {
				continue
			}
			if implementation := replace(name, o, binding); implementation != nil {
				replaced = append(replaced, cel.Function(name, overload(o, implementation), decls.DisableTypeGuards(true)))
			}
		}
	}
	return env.Extend(replaced...)
}

// overload declares an overload with another implementation.
func overload(o *decls.OverloadDecl, implementation call) cel.FunctionOpt {
	declare := cel.Overload
	if o.IsMemberFunction() {
		declare = cel.MemberOverload
	}
	binding := cel.FunctionBinding(func(args ...ref.Val) ref.Val { return implementation(args...) })
	switch len(o.ArgTypes()) {
	case 1:
		binding = cel.UnaryBinding(func(a ref.Val) ref.Val { return implementation(a) })
	case 2:
		binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return implementation(a, b) })
	}
	return declare(o.ID(), o.ArgTypes(), o.ResultType(), binding)
}

// invoke calls the original implementation of an overload.
func invoke(binding *functions.Overload, args []ref.Val) ref.Val {
	switch {
	case len(args) == 1 && binding.Unary != nil:
		return binding.Unary(args[0])
	case len(args) == 2 && binding.Binary != nil:
		return binding.Binary(args[0], args[1])
	}
	return binding.Function(args...)
}
