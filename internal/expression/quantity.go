// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// longQuantity and farQuantity are texts of quantities that are not read. To
// compare 1e2000000000 takes as many digits, which no limit of costs counts, and
// a node's label may say that.
const longQuantity = 64

var farQuantity = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// boundedQuantities replaces those of Kubernetes' functions that read texts.
var boundedQuantities = []cel.EnvOption{
	cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apiservercel.QuantityType,
		cel.UnaryBinding(func(text ref.Val) ref.Val {
			q, err := parseQuantity(text)
			if err != nil {
				return err
			}
			return apiservercel.Quantity{Quantity: &q}
		}))),
	cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType,
		cel.UnaryBinding(func(text ref.Val) ref.Val {
			_, err := parseQuantity(text)
			return types.Bool(err == nil)
		}))),
}

// parseQuantity returns the quantity of a text, or an error as CEL has them.
func parseQuantity(value ref.Val) (resource.Quantity, ref.Val) {
	text, ok := value.(types.String)
	if !ok {
		return resource.Quantity{}, types.MaybeNoSuchOverloadErr(value)
	}
	if len(text) > longQuantity || farQuantity.MatchString(string(text)) {
		return resource.Quantity{}, types.NewErr("quantity out of range: at most %d letters, and an exponent of two digits", longQuantity)
	}
	q, err := resource.ParseQuantity(string(text))
	if err != nil {
		return resource.Quantity{}, types.WrapErr(err)
	}
	return q, nil
}
