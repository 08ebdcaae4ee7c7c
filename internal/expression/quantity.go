// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"math"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// longQuantity and farQuantity reject texts of quantities that are expensive to process.
// Comparing 1e2000000000 requires that many digits, which no cost limit accounts for,
// and the value may come from a node's label.
const longQuantity = 64

var farQuantity = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// largestQuantity does the same for quantities that are fields of an object, which the API
// server stores with any exponent. All quantities of accepted texts are less. Small values
// need no limit, because parsing rounds them up to 1n.
const largestQuantity = 1e200

// CheckQuantity returns an error if a quantity is expensive to process, for example to
// compare or to format. The check itself is cheap.
func CheckQuantity(q resource.Quantity) error {
	// This does not compute the power of ten. 0e400 is not a number, and fails, too.
	if math.Abs(q.AsApproximateFloat64()) <= largestQuantity {
		return nil
	}
	return fmt.Errorf("quantity out of range: more than %g", largestQuantity)
}

// boundedQuantities replaces Kubernetes' functions that parse quantities.
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

// parseQuantity returns the quantity of a text, or a CEL error.
func parseQuantity(value ref.Val) (resource.Quantity, ref.Val) {
	text, ok := value.(types.String)
	if !ok {
		return resource.Quantity{}, types.MaybeNoSuchOverloadErr(value)
	}
	if len(text) > longQuantity || farQuantity.MatchString(string(text)) {
		return resource.Quantity{}, types.NewErr("quantity out of range: at most %d characters and an exponent of at most two digits are allowed", longQuantity)
	}
	q, err := resource.ParseQuantity(string(text))
	if err != nil {
		return resource.Quantity{}, withText(types.WrapErr(err), value)
	}
	return q, nil
}
