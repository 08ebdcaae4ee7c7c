// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// DeviceExpression is a compiled expression over a DRA device, as in the selectors of a
// DeviceClass. It is compiled and evaluated by the scheduler's code, except that texts of
// quantities and the work of a single call are limited. It is immutable and safe for concurrent use.
type DeviceExpression struct{ compiled dracel.CompilationResult }

// deviceFeatures enables what alpha and beta features add to expressions, because the API
// server's features are not known. A slice without these fields has none of the values.
var deviceFeatures = dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}

// deviceEnvironment returns the CEL environment of expressions over devices.
var deviceEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	trivial := compileForDRA("true")
	if trivial.Error != nil {
		return nil, trivial.Error
	}
	env, err := trivial.Environment.Extend(boundedQuantities...)
	if err != nil {
		return nil, err
	}
	return limitWork(env)
})

func compileForDRA(expression string) dracel.CompilationResult {
	return dracel.GetCompiler(deviceFeatures).CompileCELExpression(expression, dracel.Options{CostLimit: new(uint64(CostLimit))})
}

// CompileDevice is Compile for an expression over a device, which is the variable device.
func CompileDevice(expression string) (*DeviceExpression, error) {
	return compiledDevices.getOrCompile(expression, compileDevice)
}

func compileDevice(expression string) (*DeviceExpression, error) {
	env, err := deviceEnvironment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL for devices: %w", err)
	}
	// This checks the bounds before the compiler, which has none, and its errors have
	// positions.
	checked, err := check(env, expression)
	if err != nil {
		return nil, err
	}
	compiled := compileForDRA(expression)
	switch {
	case compiled.Error != nil:
		return nil, fmt.Errorf("compiling for devices: %s", compiled.Error.Detail)
	case compiled.MaxCost > estimateLimit:
		return nil, errTooCostly(compiled.MaxCost)
	}
	// The compiler's program accepts any quantity, and texts of devices may contain one. It
	// also calls functions before it computes what they cost.
	searched := patternsIn(checked.NativeRep())
	if compiled.Program, err = env.Program(checked, cel.CostLimit(CostLimit), chargeCalls, chargeWork, limitComparisons, searched.charge(), searched.limit()); err != nil {
		return nil, fmt.Errorf("planning its evaluation: %w", err)
	}
	return &DeviceExpression{compiled}, nil
}

// Matches evaluates the expression for a device. It returns an error if the expression
// reads an attribute that the device does not have, does not return a bool, or costs more
// than CostLimit, or if a capacity of the device is out of range.
func (e *DeviceExpression) Matches(driver string, d *resourcev1.Device) (bool, error) {
	if err := checkCapacity(d); err != nil {
		return false, err
	}
	matches, _, err := e.compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	return matches, dracel.EnhanceRuntimeError(err)
}

// checkCapacity checks all quantities of a device that an expression can read. For the same
// device, it always returns the same error.
func checkCapacity(d *resourcev1.Device) error {
	var first resourcev1.QualifiedName
	var failed error
	for name := range d.Capacity {
		if err := CheckQuantity(d.Capacity[name].Value); err != nil && (failed == nil || name < first) {
			first, failed = name, err
		}
	}
	if failed != nil {
		return fmt.Errorf("capacity %s: %w", first, failed)
	}
	return nil
}
