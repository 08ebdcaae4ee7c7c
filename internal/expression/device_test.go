// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func testDevice() *resourcev1.Device {
	return &resourcev1.Device{
		Name: "gpu-0",
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model":               {StringValue: new("A100")},
			"far":                 {StringValue: new("1e999")},
			"driverVersion":       {VersionValue: new("570.1.0")},
			"links":               {IntValues: []int64{1, 2}},
			"fabric.example.com/": {BoolValue: new(true)},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
	}
}

// Expressions are those of DeviceClasses.
func TestDeviceMatches(t *testing.T) {
	twenty := "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20].all"
	for text, want := range map[string]string{
		`device.driver == "gpu.example.com"`:                                                                 "true",
		`device.attributes["gpu.example.com"].model == "A100"`:                                               "true",
		`device.attributes["gpu.example.com"].model == "H100"`:                                               "false",
		`device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("560.0.0"))`:                "true",
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`:                         "true",
		`quantity(device.attributes["gpu.example.com"].far).isGreaterThan(quantity("1"))`:                    "quantity out of range",
		`isQuantity(device.attributes["gpu.example.com"].far)`:                                               "false",
		twenty + "(a, " + twenty + "(b, " + twenty + "(c, a + b + c > 0)))":                                  "cost limit exceeded",
		`cel.bind(dra, device.attributes["gpu.example.com"], dra.model == "A100" && dra.links.includes(2))`:  "true",
		`!device.allowMultipleAllocations`:                                                                   "true",
		`device.attributes["gpu.example.com"].?missing.orValue("x") == "x"`:                                  "true",
		`device.attributes["gpu.example.com"].missing == "x"`:                                                "no such key: missing",
		`device.attributes["gpu.example.com"].model`:                                                         "could not be converted to bool",
		`"a".replace("a", "b", 1).size() > 0 && [1, 2, 3].all(x, device.attributes.exists(d, x > 0))`:        "",
		`device.attributes["gpu.example.com"].links.all(x, [1, 2, 3, 4].exists(y, [5, 6].exists(z, y < z)))`: "true",
	} {
		e, err := CompileDevice(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := e.Matches("gpu.example.com", testDevice())
		if result := fmt.Sprint(got); err == nil && result != want && want != "" {
			t.Errorf("%s: %s, want %s", text, result, want)
		} else if err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestBadDeviceExpressions(t *testing.T) {
	nested := "device.attributes"
	for i := range 5 {
		nested = fmt.Sprintf("%s.all(a%d, %s", "device.attributes", i, nested)
	}
	for text, want := range map[string]string{
		`device.model == "A100"`:                "line 1, column 7: undefined field 'model'",
		`devices.size() > 0`:                    "line 1, column 1: undeclared reference to 'devices'",
		`device.driver ==`:                      "Syntax error",
		`device.driver`:                         "must evaluate to bool",
		`labels["a"] == "b"`:                    "undeclared reference to 'labels'",
		strings.Repeat("a", TextMax+1):          "at most 1024 are allowed",
		nested + strings.Repeat(")", 5):         "nests more than 4 loops",
		`device.driver.matches("a{500}b{500}")`: "too large",
		`device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a < b))))`: "it may cost too much",
	} {
		if _, err := CompileDevice(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// The same expression is compiled once, while it is in use.
func TestDeviceExpressionsAreShared(t *testing.T) {
	const text = `device.driver == "shared.example.com"`
	a, err := CompileDevice(text)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := CompileDevice(text); a != b || !IsDeviceCompiled(text) || IsCompiled(text) || IsObjectCompiled(text) {
		t.Error("the expression was compiled twice, or is shared with those of another kind")
	}
}

// A device with a capacity that is expensive to compare fails before anything compares it.
func TestDeviceWithCapacityOutOfRange(t *testing.T) {
	for _, text := range []string{
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`,
		`device.capacity["gpu.example.com"].?cores.hasValue()`, `device.driver == "gpu.example.com"`,
	} {
		e, err := CompileDevice(text)
		if err != nil {
			t.Fatal(err)
		}
		d := testDevice()
		for _, name := range []resourcev1.QualifiedName{"cores", "example.com/bandwidth", "zones"} {
			d.Capacity[name] = resourcev1.DeviceCapacity{Value: resource.MustParse("1e201")}
		}
		if matches, err := e.Matches("gpu.example.com", d); matches || err == nil || err.Error() != "capacity cores: quantity out of range: more than 1e+200" {
			t.Errorf("%s: %v, %v", text, matches, err)
		}
	}
}
