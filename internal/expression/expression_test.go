// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const ownKey = "own.example/not-ready"

// aNode returns a node with one of everything that an expression can read.
func aNode() *gate.Node {
	added := metav1.NewTime(epoch)
	return &gate.Node{
		Name: "n1", Created: epoch,
		Labels:      labels.Set{"pool": "gpu", "example.com/driver": "570.3.1"},
		Annotations: map[string]string{"example.com/warm": "42"},
		Allocatable: map[string]resource.Quantity{"example.com/gpu": resource.MustParse("8")},
		Info:        map[string]string{"kernelVersion": "6.12.1", "kubeletVersion": "v1.37.1"},
		Conditions: []gate.Condition{
			{Type: "Ready", Status: corev1.ConditionTrue, Transition: epoch.Add(time.Minute)},
			{Type: "DiskPressure", Status: corev1.ConditionFalse},
		},
		Taints: []corev1.Taint{
			{Key: ownKey, Effect: corev1.TaintEffectNoSchedule},
			{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added},
		},
	}
}

func mustCompile(t testing.TB, text string) *Expression {
	t.Helper()
	e, err := Compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// truths contains expressions that are true for the node, by subject.
var truths = map[string]string{
	"a label":                      `labels["pool"] == "gpu"`,
	"a label with a plain name":    `labels.pool == "gpu"`,
	"a missing label":              `labels[?"zone"].orValue("none") == "none"`,
	"whether a label exists":       `"pool" in labels && !("zone" in labels) && has(labels.pool)`,
	"all labels":                   `labels.exists(k, k.startsWith("example.com/"))`,
	"a label by another label":     `labels[labels["pool"] == "gpu" ? "pool" : "zone"] == "gpu"`,
	"a version":                    `semver(labels["example.com/driver"]).isGreaterThan(semver("560.0.0"))`,
	"an annotation":                `int(annotations["example.com/warm"]) > 40`,
	"an optional annotation":       `annotations[?"example.com/warm"].orValue("") == "42" && annotations.?other.orValue("") == ""`,
	"whether an annotation exists": `"example.com/warm" in annotations && !has(annotations.other)`,
	"a condition":                  `conditions.exists(c, c.type == "Ready" && c.status == "True")`,
	"a missing condition":          `!conditions.exists(c, c.type == "NetworkReady")`,
	"every pressure":               `conditions.filter(c, c.type.endsWith("Pressure")).all(c, c.status == "False")`,
	"a transition":                 `conditions.all(c, !has(c.lastTransitionTime) || c.lastTransitionTime > created)`,
	"two transitions":              `conditions.filter(c, has(c.lastTransitionTime)).size() == 1`,
	"a taint":                      `taints.exists(t, t.key == "k" && t.value == "v" && t.effect == "NoExecute" && t.timeAdded == created)`,
	"not the gate's own taint":     `taints.size() == 1 && !taints.exists(t, t.key == "` + ownKey + `")`,
	"a resource":                   `allocatable["example.com/gpu"].compareTo(quantity("8")) == 0`,
	"an optional resource":         `allocatable[?"example.com/nic"].orValue(quantity("0")).asInteger() == 0`,
	"whether a resource exists":    `"example.com/gpu" in allocatable && !("nic" in allocatable)`,
	"the kernel":                   `semver(nodeInfo.kernelVersion, true).major() >= 6`,
	"an empty field":               `!has(nodeInfo.machineID) && has(nodeInfo.kubeletVersion)`,
	"created":                      `created < timestamp("2027-01-01T00:00:00Z") && created.getFullYear() == 2026`,
	"equal records":                `conditions[0] == conditions[0] && conditions[0] != conditions[1] && taints == taints`,
	"a regular expression":         `labels["example.com/driver"].matches("^57[0-9][.]")`,
	"lists within lists":           `conditions.all(c, taints.all(t, t.key != c.type))`,
	"sets and strings":             `sets.contains(["gpu", "cpu"], [labels.pool]) && "a,b".split(",").size() == 2`,
	"an address":                   `cidr("10.0.0.0/8").containsIP(ip("10.1.2.3"))`,
	"a type":                       `type(conditions[0]) == type(conditions[1])`,
}

func TestTrueOfANode(t *testing.T) {
	for name, text := range truths {
		t.Run(name, func(t *testing.T) {
			for expression, want := range map[string]bool{text: true, "!(" + text + ")": false} {
				if got, err := mustCompile(t, expression).Holds(aNode(), ownKey); err != nil || got != want {
					t.Errorf("%s: %v, %v", expression, got, err)
				}
			}
		})
	}
}

// An expression does not see its own gate's taint, but it sees the taints of other
// gates.
func TestForeignTaints(t *testing.T) {
	e := mustCompile(t, `taints.exists(t, t.key == "`+ownKey+`")`)
	n := aNode()
	for _, c := range []struct {
		own  []string
		want bool
	}{{[]string{ownKey, ownKey}, false}, {[]string{ownKey, "again"}, false}, {[]string{"again", ownKey}, false}, {[]string{"another", "again"}, true}} {
		if got, err := e.Holds(n, c.own...); err != nil || got != c.want {
			t.Errorf("for the gate with %s: %v, %v", c.own, got, err)
		}
	}
	if len(n.Taints) != 2 {
		t.Error("the facts were modified")
	}
}

// Reading a value that does not exist is an error, never false.
func TestMissingValues(t *testing.T) {
	for text, want := range map[string]string{
		`labels["zone"] == "a"`:                                                              "no such key: zone",
		`labels["zone"] != "a"`:                                                              "no such key: zone",
		`annotations["example.com/cold"] == ""`:                                              "no such key: example.com/cold",
		`allocatable["nic"].isGreaterThan(quantity("0"))`:                                    "no such key: nic",
		`nodeInfo.machineID == ""`:                                                           "no such field: machineID",
		`conditions.all(c, c.lastTransitionTime >= created)`:                                 "no such field: lastTransitionTime",
		`conditions[7].status == "True"`:                                                     "index out of bounds: 7",
		`labels.zone.split(",").sort()[0] == "a"`:                                            "no such key: zone",
		`conditions.sortBy(c, labels.zone)[0].type == "a"`:                                   "no such key: zone",
		`int(labels["pool"]) > 1`:                                                            `type conversion error from 'string' to 'int': "gpu"`,
		`semver(labels["pool"]).major() == 1`:                                                `No Major.Minor.Patch elements found: "gpu"`,
		`timestamp(labels["pool"]) > created`:                                                `'google.protobuf.Timestamp': "gpu"`,
		`quantity(labels.pool).isInteger()`:                                                  `: "gpu"`,
		`labels.pool.charAt(9) == ""`:                                                        `index out of range: 9: "gpu"`,
		`int(labels.pool + "` + strings.Repeat("x", 90) + `") > 1`:                           `'int': "gpu` + strings.Repeat("x", 58) + `..."`,
		`int(labels.pool + "%d\n") > 1`:                                                      `'int': "gpu%d\n"`,
		`1 / (labels.size() - 2) == 1`:                                                       "division by zero",
		`dyn(labels["pool"]) > 1`:                                                            "no such overload",
		`quantity(labels.pool == "gpu" ? "1e2000000000" : "1").isGreaterThan(quantity("1"))`: "quantity out of range",
		`annotations["example.com/warm"].replace("4", "") > 0`:                               "",
	} {
		e, err := Compile(text)
		if want == "" {
			if err == nil {
				t.Errorf("%s: compiled", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.Holds(aNode(), ownKey); err == nil || got || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, got, err, want)
		}
	}
	// The result of || is known if one operand is true.
	if got, err := mustCompile(t, `labels["zone"] == "a" || labels["pool"] == "gpu"`).Holds(aNode(), ownKey); err != nil || !got {
		t.Errorf("one of two: %v, %v", got, err)
	}
	if _, err := mustCompile(t, `has(nodeInfo.osImage) || labels["pool"] == annotations["a"]`).Holds(&gate.Node{}, ownKey); err == nil {
		t.Error("no error on a node without facts")
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`labels["a"] ==`:                      "line 1, column 15: Syntax error",
		"labels[\"a\"] ==\n  label[\"b\"]":    "line 2, column 3: undeclared reference to 'label'",
		`labels.a == 1`:                       "line 1, column 10: found no matching overload",
		`nodeInfo.kernel == ""`:               "line 1, column 9: undefined field 'kernel'",
		`conditions.exists(c, c.state == "")`: "undefined field 'state'",
		`labels.a`:                            "it must return bool, but returns string",
		`dyn(true)`:                           "it must return bool, but returns dyn",
		`optional.of(true)`:                   "it must return bool, but returns optional_type(bool)",
		`labels.a.matches("(")`:               "line 1, column 18: invalid matches argument",
		`now() > created`:                     "undeclared reference to 'now'",
		`now > created`:                       "undeclared reference to 'now'",
		`authorizer.group("").resource("nodes").check("get").allowed()`: "undeclared reference to 'authorizer'",
		`x == 1 || y == 1 || z == 1 || w == 1`:                          "; and 1 more",

		// Values without a literal name cannot be stored.
		`annotations[labels.a] == ""`:                 `line 1, column 1: the keys of annotations must be named literally`,
		`annotations.exists(k, k == "a")`:             "the keys of annotations must be named literally",
		`true && labels.a in annotations`:             "line 1, column 21: the keys of annotations must be named literally",
		`size(annotations) > 0`:                       "the keys of annotations must be named literally",
		`annotations == labels`:                       "the keys of annotations must be named literally",
		`[annotations][0].a == ""`:                    "the keys of annotations must be named literally",
		`annotations["a" + "b"] == ""`:                "the keys of annotations must be named literally",
		`labels.all(annotations, annotations == "a")`: "the keys of annotations must be named literally",
		`allocatable.all(r, r != "")`:                 "the resources of allocatable must be named literally",
		`nodeInfo == nodeInfo`:                        "the fields of nodeInfo must be named",

		// Texts that no user would write.
		strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300):        "recursion",
		strings.Repeat("[", 300) + "1" + strings.Repeat("]", 300) + "== []": "recursion",
		strings.Repeat("labels.a == ", 300) + "labels.b":                    "",
		"":         "Syntax error",
		" ":        "Syntax error",
		"true\x00": "line 1, column 5: Syntax error",
		"\xff":     "Syntax error",
		`labels["größe"] == "groß" && labels["日本"] == 1`: "line 1, column 43: found no matching overload",
		"true &&\r\n\tgröße":   "line 2, column 4: ",
		"labels.größe == \"\"": "line 1, column 10: Syntax error",
		"\"🚀🚀\" == x":          "line 1, column 9: undeclared reference to 'x'",

		// Expressions that may cost too much.
		`labels.all(a, labels.all(b, labels.all(c, a != b && b != c)))`:             "it may cost too much",
		`conditions.all(a, conditions.all(b, conditions.all(c, a.type != c.type)))`: "it may cost too much",
	} {
		t.Run(text[:min(len(text), 80)], func(t *testing.T) {
			if _, err := Compile(text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
}

// An evaluation that exceeds the cost limit ends with an error.
func TestCostOfAnEvaluation(t *testing.T) {
	e := mustCompile(t, `labels.all(k, k != "a")`)
	n := aNode()
	if got, err := e.Holds(n, ownKey); err != nil || !got {
		t.Errorf("on a usual node: %v, %v", got, err)
	}
	doubled := mustCompile(t, `["x"]`+strings.Repeat(`.map(a, a`+strings.Repeat(" + a", 31)+`)`, 4)+`.size() == 1`)
	if got, err := doubled.Holds(aNode(), ownKey); err == nil || got || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("a text of 2^20 characters: %v, %v", got, err)
	}
	for i := range 5000 {
		n.Labels["x"+strconv.Itoa(i)] = ""
	}
	if got, err := e.Holds(n, ownKey); err == nil || got || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("on a node with 5,000 labels: %v, %v", got, err)
	}
}

// Two nested loops over conditions work only on nodes with few conditions. One loop that searches a
// list of types, as docs/guides/expressions.md recommends, works on all nodes.
func TestCostOfNestedLoops(t *testing.T) {
	with := func(conditions int) *gate.Node {
		n := &gate.Node{}
		for i := range conditions {
			n.Conditions = append(n.Conditions, gate.Condition{Type: "example.com/" + strconv.Itoa(i), Status: corev1.ConditionTrue})
		}
		return n
	}
	for _, expression := range []string{
		`conditions.all(c, conditions.exists(d, c.type == d.type && d.status == "True"))`,
		`!conditions.exists(c, conditions.exists(d, c.type != d.type && c.status == "True" && d.status == "False"))`,
	} {
		e := mustCompile(t, expression)
		if got, err := e.Holds(with(20), ownKey); err != nil || !got {
			t.Errorf("%s with 20 conditions: %v, %v", expression, got, err)
		}
		if got, err := e.Holds(with(42), ownKey); err == nil || got || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s with 42 conditions: %v, %v", expression, got, err)
		}
	}
	for _, expression := range []string{
		`conditions.filter(c, c.type in ["example.com/1", "example.com/999"] && c.status == "True").size() == 2`,
		`conditions.exists(c, c.type in ["example.com/999", "example.com/1000"] && c.status == "True")`,
	} {
		if got, err := mustCompile(t, expression).Holds(with(1000), ownKey); err != nil || !got {
			t.Errorf("%s with 1,000 conditions: %v, %v", expression, got, err)
		}
	}
}

// Quantities that would require billions of digits to compare are rejected; all others
// are parsed as in Kubernetes.
func TestQuantities(t *testing.T) {
	for text, is := range map[string]bool{
		"1": true, "4Gi": true, "100m": true, "1e3": true, "1E99": true, "-1.5": true, strings.Repeat("1", longQuantity): true,
		"": false, "abc": false, "1Zi": false, "1e100": false, "1e2000000000": false, "1e-2000000000": false, "1E+0001": false,
		strings.Repeat("1", longQuantity+1): false,
	} {
		for expression, want := range map[string]bool{`isQuantity("` + text + `")`: is, `quantity("` + text + `") == quantity("` + text + `")`: is} {
			got, err := mustCompile(t, expression).Holds(aNode(), ownKey)
			if got != want || (err != nil) != (!is && strings.HasPrefix(expression, "quantity")) {
				t.Errorf("%s: %v, %v", expression, got, err)
			}
		}
	}
	if got, err := mustCompile(t, `quantity(string(labels.size())) == quantity("2") && isQuantity(labels.pool)`).Holds(aNode(), ownKey); err != nil || got {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	e := mustCompile(t, `annotations["b"] == "" || annotations.?a.hasValue() || annotations[?"c"] == optional.none() || has(annotations.d) ||
		"e" in annotations || annotations["b"] != "x" || labels["f"] == "" || allocatable["r"] == quantity("1") ||
		labels.exists(l, l == annotations["g"]) || nodeInfo.osImage != "" || has(nodeInfo.bootID) || labels[annotations["h"]] == ""`)
	if got := e.Annotations(); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "g", "h"}) {
		t.Errorf("annotations %v", got)
	}
	if got := e.Resources(); !slices.Equal(got, []string{"r"}) {
		t.Errorf("resources %v", got)
	}
	if got := e.NodeInfo(); !slices.Equal(got, []string{"bootID", "osImage"}) {
		t.Errorf("fields of nodeInfo %v", got)
	}
}

// A loop may declare a variable with the name of one of ours, which a dot then precedes.
func TestNamesOfShadowedVariables(t *testing.T) {
	e := mustCompile(t, `[1].all(taints, .taints.size() == 2) && [1].all(conditions, .conditions.size() == 2) &&
		[1].all(annotations, .annotations["example.com/warm"] == "42") && [1].all(allocatable, "example.com/gpu" in .allocatable) &&
		[1].all(nodeInfo, has(.nodeInfo.kubeletVersion))`)
	if got, err := e.Holds(aNode()); err != nil || !got {
		t.Errorf("%v, %v", got, err)
	}
	if !e.ReadsTaints() || !e.ReadsConditions() {
		t.Errorf("reads taints: %t, conditions: %t", e.ReadsTaints(), e.ReadsConditions())
	}
	got := slices.Concat(e.Annotations(), e.Resources(), e.NodeInfo())
	if want := []string{"example.com/warm", "example.com/gpu", "kubeletVersion"}; !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	if _, err := Compile(`[1].all(annotations, .annotations.size() == 0)`); err == nil || !strings.Contains(err.Error(), "must be named literally") {
		t.Errorf("all annotations: %v", err)
	}
}

// What an expression may cost does not depend on the names of its loops' variables.
func TestCostOfShadowedVariables(t *testing.T) {
	costs := make(map[uint64]bool)
	for _, text := range []string{`labels.all(k, annotations["a"].contains("x"))`, `labels.all(annotations, .annotations["a"].contains("x"))`} {
		env, err := environment()
		if err != nil {
			t.Fatal(err)
		}
		checked, err := check(env, text)
		if err != nil {
			t.Fatal(err)
		}
		cost, err := checkCost(env, checked, nil)
		if err != nil {
			t.Fatal(err)
		}
		costs[cost] = true
	}
	if len(costs) != 1 {
		t.Errorf("estimates %v", costs)
	}
}

func TestConcurrentUse(t *testing.T) {
	e := mustCompile(t, truths["a condition"])
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			n := aNode()
			if i%2 == 1 {
				n.Conditions = n.Conditions[1:]
			}
			for range 200 {
				if got, err := e.Holds(n, ownKey); err != nil || got != (i%2 == 0) {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
	running.Wait()
}
