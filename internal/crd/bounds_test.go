// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// integers contains, for each integer of the definition, a gate with %s in place of its
// value. The types of closeWhen and anyOf are those of openWhen.
var integers = map[string]string{
	".spec.timing.minClosedSeconds":                     "timing: {minClosedSeconds: %s}",
	".spec.timing.openAfterSeconds":                     "timing: {openAfterSeconds: %s}",
	".spec.timing.closeAfterSeconds":                    "timing: {closeAfterSeconds: %s}",
	".spec.timing.rolloutGraceSeconds":                  "timing: {rolloutGraceSeconds: %s}",
	".spec.holdSeconds":                                 "{bypassedPods: Hold, holdSeconds: %s}",
	".spec.deadline.podMissingSeconds":                  "deadline: {podMissingSeconds: %s}",
	".spec.deadline.readySeconds":                       "deadline: {readySeconds: %s}",
	".spec.openWhen[].daemonSet.minReadySeconds":        "- {name: a, daemonSet: {namespace: a, name: a, minReadySeconds: %s}}",
	".spec.openWhen[].daemonSets.minReadySeconds":       "- {name: a, daemonSets: {namespaces: [a], selector: {}, minReadySeconds: %s}}",
	".spec.openWhen[].completed.maxAgeSeconds":          "- {name: a, completed: {namespace: a, selector: {matchLabels: {a: b}}, maxAgeSeconds: %s}}",
	".spec.openWhen[].pods.minReadySeconds":             "- {name: a, pods: {namespace: a, selector: {matchLabels: {a: b}}, minReadySeconds: %s}}",
	".spec.openWhen[].condition.forSeconds":             "- {name: a, condition: {type: a, status: b, forSeconds: %s}}",
	".spec.openWhen[].resourceSlices.minDevices":        "- {name: a, resourceSlices: {driver: gpu.example.com, minDevices: %s}}",
	".spec.openWhen[].condition.maxHeartbeatAgeSeconds": "- {name: a, condition: {type: a, status: b, maxHeartbeatAgeSeconds: %s}}",
}

// asOpenWhen returns the corresponding path in openWhen.
func asOpenWhen(path string) string {
	path = strings.Replace(path, ".closeWhen[]", ".openWhen[]", 1)
	return strings.Replace(path, ".anyOf[]", "", 1)
}

// TestEveryIntegerIsBounded exceeds both bounds of every integer, and tries negative
// values, values that no Go type can hold, and values that are not integers. Each must
// be rejected with the path of the field.
func TestEveryIntegerIsBounded(t *testing.T) {
	tested := make(map[string]bool)
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if schema.Type != "integer" || !strings.HasPrefix(path, ".spec.") {
			return
		}
		known := asOpenWhen(path)
		fields, ok := integers[known]
		switch {
		case !ok:
			t.Errorf("%s is not in the table", path)
			return
		case schema.Minimum == nil || schema.Maximum == nil:
			t.Errorf("%s is not bounded", path)
			return
		case *schema.Minimum < 0 || *schema.Maximum > math.MaxInt32 || *schema.Maximum*float64(time.Second) > math.MaxInt64:
			t.Errorf("%s: the range from %v to %v is invalid", path, *schema.Minimum, *schema.Maximum)
		}
		tested[known] = true
		if path == known {
			testInteger(t, path, fields, int64(*schema.Minimum), int64(*schema.Maximum))
		}
	})
	for path := range integers {
		if !tested[path] {
			t.Errorf("%s is in the table but not in the definition", path)
		}
	}
}

func testInteger(t *testing.T, path, fields string, least, most int64) {
	t.Helper()
	at := strings.TrimPrefix(strings.ReplaceAll(path, "[]", "[0]"), ".")
	for value, want := range map[string]bool{
		fmt.Sprint(least): true, fmt.Sprint(most): true,
		fmt.Sprint(least - 1): false, fmt.Sprint(most + 1): false, fmt.Sprint(math.MinInt64): false,
		fmt.Sprint(math.MaxInt32 + 1): false, fmt.Sprint(math.MaxUint32): false, fmt.Sprint(math.MaxInt64): false,
		"1e30": false, "1.5": false, `"5"`: false, "5m": false, "yes": false, "[1]": false,
	} {
		err := inProcess(t, document(t, fmt.Sprintf(fields, value)))
		refused := slices.ContainsFunc(effective(causes(t, err)), refusalAt(at))
		if refused == want {
			t.Errorf("%s: %s: rejected: %v (%v)", path, value, refused, err)
		}
	}
}

// TestNumbersThatMayBeTexts is the same for fields that accept both numbers and
// strings.
func TestNumbersThatMayBeTexts(t *testing.T) {
	for _, field := range []struct {
		at, fields string
		takes      []string
		refuses    []string
	}{{
		at: "spec.budget.maxReclosed", fields: "budget: {maxReclosed: %s}",
		takes: []string{"0", "1", "1000000", `"0%"`, `"1%"`, `"99%"`, `"100%"`},
		refuses: []string{
			"-1", "1000001", "2147483648", "4294967296", "9223372036854775807", "1e30", "1.5", "true", "[1]",
			`"101%"`, `"200%"`, `"1000%"`, `"-1%"`, `"+5%"`, `"007%"`, `"00%"`, `"1e3%"`, `"5.5%"`, `"5 %"`, `" 5%"`, `"5%\n"`,
			`"5"`, `"%"`, `""`, `"abc"`, `"abc%"`, `"٣%"`, `"100%%"`, `"00000000000%"`,
		},
	}, {
		at: "spec.openWhen[0].resource.atLeast", fields: "- {name: a, resource: {name: a, atLeast: %s}}",
		takes: []string{"1", "1000000", `"1m"`, `"4Gi"`, `"1e3"`, `"1E99"`, `"2.5"`},
		// Comparing a quantity with an exponent of a billion requires a billion digits.
		refuses: []string{
			"0", "-1", "1.5", "true", `"0"`, `"-1Gi"`, `""`, `"abc"`, `"1Zi"`, `"1 Gi"`, `"1e"`, `"0e5"`,
			`"1e100"`, `"1e2000000000"`, `"1e-2000000000"`, `"1e+0000000001"`, `"1E999999999"`,
		},
	}} {
		for value, want := range both(field.takes, field.refuses) {
			err := inProcess(t, document(t, fmt.Sprintf(field.fields, value)))
			if refused := slices.ContainsFunc(effective(causes(t, err)), refusalAt(field.at)); refused == want {
				t.Errorf("%s: %s: rejected: %v (%v)", field.at, value, refused, err)
			}
		}
	}
}

// refusalAt returns a function that reports whether a cause is the rejection of a
// field. The cause of a wrong type has no field.
func refusalAt(at string) func(metav1.StatusCause) bool {
	return func(c metav1.StatusCause) bool { return c.Field == at || strings.Contains(c.Message, at) }
}

func both(takes, refuses []string) map[string]bool {
	all := make(map[string]bool)
	for _, value := range takes {
		all[value] = true
	}
	for _, value := range refuses {
		all[value] = false
	}
	return all
}
