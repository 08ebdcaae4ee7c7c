// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/presets"
)

// Invalid values are rejected with a one-line message that contains their path.
func TestBadValues(t *testing.T) {
	t.Parallel()
	gate := object{"taint": object{"key": "x.example.com/y", "effect": "NoSchedule"}, "openWhen": []object{{"name": "l", "label": object{"key": "l"}}}}
	for want, values := range map[string]object{
		"additional properties 'replicaCount' not allowed":                                                {"replicaCount": 3},
		"at '/replicas': minimum: got 0, want 1":                                                          {"replicas": 0},
		"at '/birth': value must be one of 'auto', 'policy', 'webhook'":                                   {"birth": "magic"},
		"at '/allowedTaintKeys/0': value must be 'node.kubernetes.io/out-of-service:NoExecute'":           {"allowedTaintKeys": []string{"node.kubernetes.io/unschedulable"}},
		"at '/allowedTaintKeys/0': 'a b' does not match pattern":                                          {"allowedTaintKeys": []string{"a b"}},
		"at '/allowedTaintKeys/0': 'a:Evict' does not match pattern":                                      {"allowedTaintKeys": []string{"a:Evict"}},
		"at '/allowedTaintKeys': minItems: got 0, want 1":                                                 {"allowedTaintKeys": []string{}},
		"at '/allowedTaintKeys': got string, want array":                                                  {"allowedTaintKeys": "a,b"},
		"at '/allowedStampAnnotations/0': 'not' failed":                                                   {"allowedStampAnnotations": []string{"nodegate.dev/x"}},
		"at '/presets': additional properties 'celium' not allowed":                                       {"presets": object{"celium": object{"enabled": true}}},
		"at '/presets/cilium/enabled': got string, want boolean":                                          {"presets": object{"cilium": object{"enabled": "true"}}},
		"defaultGate.spec has openWhen":                                                                   {"defaultGate": object{"spec": object{"openWhen": []object{}}}},
		"at '/defaultGate/namespaces': minItems: got 0, want 1":                                           {"defaultGate": object{"namespaces": []string{}}},
		"at '/extraTolerations/0': missing property 'key'":                                                {"extraTolerations": []object{{"operator": "Exists"}}},
		"at '/allowedTaintKeys/1': 'not' failed":                                                          {"allowedTaintKeys": []string{"karpenter.sh/example", "karpenter.sh/unregistered:NoExecute"}},
		"at '/extraTolerations/0/key': 'not' failed":                                                      {"extraTolerations": []object{{"key": "node.kubernetes.io/unschedulable"}}},
		"at '/podLabels/app.kubernetes.io~1name': false schema":                                           {"podLabels": object{"app.kubernetes.io/name": "other"}},
		"at '/metrics/port': maximum: got 65,536, want 65,535":                                            {"metrics": object{"port": 65536}},
		"metrics.port and healthPort are both 8081: set one of them to another port":                      {"metrics": object{"port": 8081}},
		"metrics.port is 9443, which is the port of the webhook: set it to another port":                  {"metrics": object{"port": 9443}, "birth": "webhook"},
		"healthPort is 9443, which is the port of the webhook: set it to another port":                    {"healthPort": 9443, "birth": "webhook"},
		"webhook.clientCA has both configMap and secret: use one of them":                                 {"webhook": object{"clientCA": object{"configMap": "a", "secret": "b"}}},
		"webhook.clientCA.names requires configMap or secret":                                             {"webhook": object{"clientCA": object{"names": []string{"kube-apiserver"}}}},
		"at '/networkPolicy/webhookFrom/0/ipBlock/cidr': '10.0.0.1' does not match pattern":               {"networkPolicy": object{"webhookFrom": []object{{"ipBlock": object{"cidr": "10.0.0.1"}}}}},
		"at '/metrics/readers/0': missing property 'namespace'":                                           {"metrics": object{"readers": []object{{"name": "prometheus"}}}},
		"at '/image/digest': 'sha256:12' does not match pattern":                                          {"image": object{"digest": "sha256:12"}},
		"at '/image/repository': 'example.com:5000/nodegate:v1' does not match pattern":                   {"image": object{"repository": "example.com:5000/nodegate:v1"}},
		"at '/image/repository': 'https://example.com/nodegate' does not match pattern":                   {"image": object{"repository": "https://example.com/nodegate"}},
		"at '/image/tag': ':v1' does not match pattern":                                                   {"image": object{"tag": ":v1"}},
		"at '/agent/image/repository': 'example.com/agent@sha256:12' does not match pattern":              {"agent": object{"image": object{"repository": "example.com/agent@sha256:12"}}},
		"at '/agent/image/tag': 'a b' does not match pattern":                                             {"agent": object{"image": object{"tag": "a b"}}},
		"at '/agent/pluginDir': 'plugins' does not match pattern":                                         {"agent": object{"pluginDir": "plugins"}},
		"at '/agent/nodeSelector/kubernetes.io~1os': value must be 'linux'":                               {"agent": object{"nodeSelector": object{corev1.LabelOSStable: "windows"}}},
		"at '/agent/nodeSelector/gpu': got boolean, want string":                                          {"agent": object{"nodeSelector": object{"gpu": true}}},
		"agent.enabled requires NodeGate objects, which gatesFromFiles.enabled replaces":                  {"agent": object{"enabled": true}, "gatesFromFiles": object{"enabled": true}},
		"gate g has the taint x.example.com/y:NoSchedule, which is not in allowedTaintKeys: add it there": {"gates": object{"g": gate}},
		"gate g: taint requires key and effect, for example {key: ":                                       {"gates": object{"g": object{"taint": object{"key": "NodeReadiness"}}}},
		"gate g: recloseTaint requires key and effect":                                                    {"gates": object{"g": object{"taint": object{"key": "NodeReadiness", "effect": "NoSchedule"}, "recloseTaint": "NodeReadiness"}}},
		"gate out-of-service has the taint node.kubernetes.io/out-of-service:NoExecute, which is not":     {"presets": object{"out-of-service": object{"enabled": true}}},
		"gate required-daemonsets has the taint startup-taint.cluster-autoscaler.kubernetes.io/required-": {"allowedTaintKeys": []string{"a"}},
		"two gates have the name cilium, which is that of a preset or of the default gate":                {"presets": object{"cilium": object{"enabled": true}}, "gates": object{"cilium": gate}, "allowedTaintKeys": append(presets.TaintKeys(), "x.example.com/y")},
	} {
		output, err := helm(t, values, "template", "nodegate", chart)
		if err == nil || !strings.Contains(err.Error(), want) || output != "" {
			t.Errorf("%v: %v; want %q", values, err, want)
		}
	}
}

// nodegate must not be permitted to read protected kinds for authors of gates.
func TestProtectedKindsAreNotObserved(t *testing.T) {
	t.Parallel()
	var observe []object
	for _, p := range v1alpha1.ProtectedKinds() {
		observe = append(observe, object{"group": p.Group, "resource": p.Resource})
	}
	observe = append(observe, object{"resource": "secrets"})
	rejectsEach(t, "observe", observe)
}

// The schema contains the taint keys that no gate may have.
func TestTaintKeysThatAffectAllGates(t *testing.T) {
	t.Parallel()
	rejectsEach(t, "allowedTaintKeys", append(v1alpha1.SetupTaintKeys(), v1alpha1.TaintCloudShutdown))
}

// rejectsEach verifies that the schema excludes each element of a list.
func rejectsEach[T any](t *testing.T, name string, list []T) {
	t.Helper()
	_, err := helm(t, object{name: list}, "template", "nodegate", chart)
	if err == nil {
		t.Fatal("they are permitted")
	}
	for i := range list {
		if want := fmt.Sprintf("at '/%s/%d': 'not' failed", name, i); !strings.Contains(err.Error(), want) {
			t.Errorf("%v is permitted: %v", list[i], err)
		}
	}
}

// A parent chart can set the values of this chart.
func TestValuesOfAnOuterChart(t *testing.T) {
	rendered(t, object{"global": object{"imageRegistry": "example.com"}, "enabled": true})
}

// The values in docs/install.md exist.
func TestValuesThatThePageNames(t *testing.T) {
	text, err := os.ReadFile("../docs/install.md")
	must(t, err)
	page := string(text)
	defaults := object{}
	readYAML(t, chart+"/values.yaml", &defaults)
	named := 0
	for _, name := range quoted.FindAllStringSubmatch(page, -1) {
		path := strings.Split(name[1], ".")
		if _, top := defaults[path[0]]; !top {
			continue // not a value
		}
		named++
		if _, known, _ := unstructured.NestedFieldNoCopy(defaults, path...); !known {
			t.Errorf("docs/install.md names the value %s, which does not exist", name[1])
		}
	}
	if named < 10 {
		t.Errorf("docs/install.md names only %d values", named)
	}
}

// quoted matches a key in backticks, with an optional value.
var quoted = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)*)(?:[=:][^`]*)?`")

// The image has the name of 'make image' and the version of git; the chart has a version
// that Helm accepts.
func TestVersions(t *testing.T) {
	var c struct{ Version, AppVersion string }
	readYAML(t, chart+"/Chart.yaml", &c)
	if image := deployment(t, rendered(t, nil)).Spec.Template.Spec.Containers[0].Image; c.AppVersion != "v"+c.Version || !strings.HasSuffix(image, ":v"+c.Version) {
		t.Errorf("chart %s has the appVersion %s and the image %s", c.Version, c.AppVersion, image)
	}
}

// Keys that values and templates both set are rendered once. Labels of the values take
// precedence.
func TestKeysThatTheChartSetsToo(t *testing.T) {
	labels := object{"enabled": true, "labels": object{"app.kubernetes.io/name": "mine", "release": "prometheus", "team": ""}}
	objects := rendered(t, object{
		"agent":   object{"enabled": true, "nodeSelector": object{corev1.LabelOSStable: "linux", "pool": "a"}},
		"metrics": object{"serviceMonitor": labels, "prometheusRule": labels, "dashboard": labels},
	})
	agent := decoded[appsv1.DaemonSet](t, objects, "DaemonSet kube-system/nodegate-agent")
	if got := agent.Spec.Template.Spec.NodeSelector; !maps.Equal(got, map[string]string{corev1.LabelOSStable: "linux", "pool": "a"}) {
		t.Errorf("the agent's node selector is %v", got)
	}
	for _, name := range []string{"ServiceMonitor nodegate-system/nodegate", "PrometheusRule nodegate-system/nodegate", "ConfigMap nodegate-system/nodegate-dashboard"} {
		got := find(t, objects, name).GetLabels()
		if _, empty := got["team"]; !empty || got["app.kubernetes.io/name"] != "mine" || got["release"] != "prometheus" || got["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%s has the labels %v", name, got)
		}
	}
}

// Values that YAML would read differently without quotes arrive as they are.
func TestValuesAreQuoted(t *testing.T) {
	const name = "kube-apiserver: a #1"
	objects := rendered(t, object{
		"birth": "webhook", "webhook": object{"clientCA": object{"secret": "clients", "names": []string{name}}},
		"transientTaintPrefixes": []string{"example.com/a", "b:"}, "priorityClassName": "1e3", "priorityClassQuota": object{"enabled": true},
	})
	d := deployment(t, objects)
	if got := argsOf(d, "--webhook-client-names="); !slices.Equal(got, []string{"--webhook-client-names=" + name}) {
		t.Errorf("arguments %q", got)
	}
	if got := argsOf(d, "--transient-taint-prefixes="); !slices.Equal(got, []string{"--transient-taint-prefixes=example.com/a,b:"}) {
		t.Errorf("arguments %q", got)
	}
	quota := decoded[corev1.ResourceQuota](t, objects, "ResourceQuota nodegate-system/nodegate-critical-pods")
	if class := quota.Spec.ScopeSelector.MatchExpressions[0].Values; d.Spec.Template.Spec.PriorityClassName != "1e3" || !slices.Equal(class, []string{"1e3"}) {
		t.Errorf("priority class %q, quota for %q", d.Spec.Template.Spec.PriorityClassName, class)
	}
}

// gatesOf returns the rendered NodeGates by name, with the API server's defaults.
func gatesOf(t *testing.T, objects []*unstructured.Unstructured) map[string]*v1alpha1.NodeGate {
	t.Helper()
	gates := map[string]*v1alpha1.NodeGate{}
	decode := func(o any) {
		t.Helper()
		text, err := yaml.Marshal(o)
		must(t, err)
		gate, err := crd.Decode(text)
		must(t, err)
		gates[gate.Name] = gate
	}
	for _, o := range objects {
		switch o.GetKind() {
		case crd.Kind:
			decode(o.Object)
		case "ConfigMap":
			var list struct{ Items []any }
			text, _, _ := unstructured.NestedString(o.Object, "data", "gates.yaml")
			must(t, yaml.Unmarshal([]byte(text), &list))
			for _, item := range list.Items {
				decode(item)
			}
		}
	}
	return gates
}

// A preset in the values renders the gate of the preset.
func TestPresetsOfTheValues(t *testing.T) {
	all := object{}
	for _, name := range presets.Names() {
		if name != defaultGate {
			all[name] = object{"enabled": true}
		}
	}
	values := object{"presets": all, "allowedTaintKeys": append(presets.TaintKeys(), v1alpha1.TaintOutOfService+":NoExecute")}
	asObjects := gatesOf(t, rendered(t, values))
	values["gatesFromFiles"] = object{"enabled": true}
	asFiles := gatesOf(t, rendered(t, values))
	if len(asObjects) != len(presets.Names()) || len(asFiles) != len(presets.Names()) {
		t.Errorf("%d gates, and %d in files, of %d presets", len(asObjects), len(asFiles), len(presets.Names()))
	}
	for _, name := range presets.Names() {
		text, err := presets.Read(name)
		must(t, err)
		want, err := crd.Decode(text)
		must(t, err)
		if !reflect.DeepEqual(asObjects[name], want) || !reflect.DeepEqual(asFiles[name], want) {
			t.Errorf("%s: %v and %v, want %v", name, asObjects[name], asFiles[name], want)
		}
	}
}

// Values of a gate are merged over its preset, or specify a gate without a preset.
func TestGatesOfTheValues(t *testing.T) {
	gates := gatesOf(t, rendered(t, object{
		"defaultGate": object{"namespaces": []string{"kube-system", "storage"}, "spec": object{"deadline": object{"readySeconds": 900}, "nodeSelector": object{"matchLabels": object{"pool": "b"}}}},
		"presets":     object{"cilium": object{"enabled": true, "spec": object{"nodeSelector": object{"matchLabels": object{"pool": "a"}}, "timing": object{"closeAfterSeconds": 30}}}},
		"gates":       object{"mine": object{"nodeSelector": object{}, "taint": object{"key": "startup.k8s.io/initializing", "value": "other", "effect": "NoSchedule"}, "openWhen": []object{{"name": "l", "label": object{"key": "l"}}}}},
	}))
	if got := gates[defaultGate].Spec.OpenWhen[0].DaemonSets.Namespaces; !reflect.DeepEqual(got, []string{"kube-system", "storage"}) {
		t.Errorf("the default gate has the namespaces %q", got)
	}
	if got := gates[defaultGate].Spec; got.Deadline == nil || *got.Deadline.ReadySeconds != 900 || !reflect.DeepEqual(got.NodeSelector.MatchLabels, map[string]string{"pool": "b", "kubernetes.io/os": "linux"}) {
		t.Errorf("the default gate is %+v", got)
	}
	cilium := gates["cilium"].Spec
	if got := cilium.NodeSelector.MatchLabels; !reflect.DeepEqual(got, map[string]string{"pool": "a", "kubernetes.io/os": "linux"}) || cilium.OpenWhen[0].DaemonSet.Name != "cilium" || *cilium.Timing.CloseAfterSeconds != 30 {
		t.Errorf("cilium is %+v", cilium)
	}
	if len(gates) != 3 || gates["mine"].Spec.Taint.Value != "other" {
		t.Errorf("gates: %v", gates)
	}
	none := rendered(t, object{"defaultGate": object{"enabled": false}, "gatesFromFiles": object{"enabled": true}})
	text, _, _ := unstructured.NestedString(find(t, none, "ConfigMap nodegate-system/nodegate-gates").Object, "data", "gates.yaml")
	if !strings.Contains(text, "kind: NodeGateList") || !strings.Contains(text, "items: []") {
		t.Errorf("without gates, the file is not an empty list: %s", text)
	}
}

// The mounted ConfigMap contains all gates of the values.
func TestNodegateReadsTheConfigMap(t *testing.T) {
	objects := rendered(t, object{"gatesFromFiles": object{"enabled": true}, "presets": object{"cilium": object{"enabled": true}}})
	mount := deployment(t, objects).Spec.Template.Spec.Containers[0]
	if at := mount.VolumeMounts[0].MountPath; !slices.Contains(mount.Args, "--gates="+at) {
		t.Errorf("gates are mounted at %s, but nodegate is started with %q", at, mount.Args)
	}
	dir := t.TempDir()
	data, _, err := unstructured.NestedStringMap(find(t, objects, "ConfigMap nodegate-system/nodegate-gates").Object, "data")
	must(t, err)
	for name, text := range data {
		write(t, filepath.Join(dir, name), []byte(text))
	}
	directory := gatefile.New(dir, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); directory.Run(ctx, func() {}) }()
	eventually(t, "the gates to be read", func(context.Context) error {
		if gates, complete := directory.Gates(); !complete || len(gates) != 2 {
			return fmt.Errorf("%d gates, complete: %t (%w)", len(gates), complete, directory.Err())
		}
		return nil
	})
	cancel()
	<-done
}

// The chart's notes contain the requirements of a preset.
func TestNotes(t *testing.T) {
	output, err := helm(t, object{"presets": object{"cilium": object{"enabled": true}}}, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
	must(t, err)
	_, notes, _ := strings.Cut(output, "NOTES:")
	for _, want := range []string{"by the API server itself", "nodegate.dev/required=true", "# Toleration: the agent", "operator.removeNodeTaints=false", "'helm uninstall nodegate -n nodegate-system'", "'kubectl gate uninstall -n nodegate-system'"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
	output, err = helm(t, object{"defaultGate": object{"spec": object{"taint": object{"key": "example.com/a", "value": "b"}}}, "allowedTaintKeys": []string{"example.com/a"}}, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
	must(t, err)
	if want := "Karpenter, add the taint example.com/a=b:NoSchedule\n"; !strings.Contains(output, want) {
		t.Errorf("the notes do not contain %q:\n%s", want, output)
	}
	if strings.Contains(notes, "calico") {
		t.Error("the notes contain a preset that is not enabled")
	}
}

// Karpenter 1.13 and newer need no startupTaints for keys with this prefix, and adding them would replace all nodes.
func TestNotesOfReadinessKey(t *testing.T) {
	t.Parallel()
	const key = "readiness.k8s.io/required-daemonsets"
	values := object{"defaultGate": object{"spec": object{"taint": object{"key": key}}}, "allowedTaintKeys": []string{key}}
	output, err := helm(t, values, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
	must(t, err)
	if want := "With Karpenter before 1.13, add the taint " + key + ":NoSchedule\n"; !strings.Contains(output, want) {
		t.Errorf("the notes do not contain %q:\n%s", want, output[strings.Index(output, "NOTES:"):])
	}
}

// 'kubectl wait' fails if there is no NodeGate.
func TestNotesWithoutGates(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{true, false} {
		output, err := helm(t, object{"defaultGate": object{"enabled": enabled}}, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
		must(t, err)
		_, notes, _ := strings.Cut(output, "NOTES:")
		if strings.Contains(notes, "kubectl wait") != enabled {
			t.Errorf("with the default gate %t, the notes are:\n%s", enabled, notes)
		}
	}
}

// The notes name the taint of the gate that waits for images, also if it is not that of the preset.
func TestNotesOfImageWarmUp(t *testing.T) {
	t.Parallel()
	values := object{
		"imageWarmUp": object{"images": []string{"example.com/a:1"}},
		"presets":     object{"image-warm-up": object{"spec": object{"taint": object{"key": "NodeReadiness"}}}},
	}
	output, err := helm(t, values, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
	must(t, err)
	if want := "must tolerate\nNodeReadiness.\n"; !strings.Contains(output, want) {
		t.Errorf("the notes do not contain %q:\n%s", want, output[strings.Index(output, "NOTES:"):])
	}
}

// If gates come from files, there are no NodeGates, which 'kubectl gate tolerate' needs.
func TestNotesOfGatesFromFiles(t *testing.T) {
	t.Parallel()
	for birth, want := range map[string]string{"policy": "get it when they are next updated", "webhook": "add the toleration to its pod template"} {
		output, err := helm(t, object{"gatesFromFiles": object{"enabled": true}, "birth": birth}, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
		must(t, err)
		_, notes, _ := strings.Cut(output, "NOTES:")
		if strings.Contains(notes, "kubectl gate tolerate") || !strings.Contains(notes, want) {
			t.Errorf("with birth %s, the notes are, want %q and no command that needs NodeGates:\n%s", birth, want, notes)
		}
	}
}

// Alerts and dashboard are rendered unchanged, including parts that look like templates.
func TestMonitoring(t *testing.T) {
	on := object{"enabled": true, "labels": object{"release": "prometheus"}}
	objects := rendered(t, object{"metrics": object{"serviceMonitor": on, "prometheusRule": on, "dashboard": on}})
	monitor := find(t, objects, "ServiceMonitor nodegate-system/nodegate")
	service := find(t, objects, "Service nodegate-system/nodegate-metrics")
	selected, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	must(t, err)
	for label, value := range selected {
		if service.GetLabels()[label] != value {
			t.Errorf("the ServiceMonitor selects %s=%s, but the Service has the labels %v", label, value, service.GetLabels())
		}
	}
	var want object
	readYAML(t, chart+"/files/alerts.yaml", &want)
	rule := find(t, objects, "PrometheusRule nodegate-system/nodegate")
	if got := rule.Object["spec"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the rules are %v, want %v", got, want)
	}
	var picture, drawn object
	readYAML(t, chart+"/files/dashboard.json", &picture)
	config := find(t, objects, "ConfigMap nodegate-system/nodegate-dashboard")
	text, _, err := unstructured.NestedString(config.Object, "data", "nodegate.json")
	must(t, errors.Join(err, yaml.Unmarshal([]byte(text), &drawn)))
	if !reflect.DeepEqual(drawn, picture) || config.GetLabels()["grafana_dashboard"] != "1" {
		t.Errorf("the dashboard differs from its file, or has the labels %v", config.GetLabels())
	}
	for _, o := range []*unstructured.Unstructured{monitor, rule, config} {
		if o.GetLabels()["release"] != "prometheus" {
			t.Errorf("%s has the labels %v", key(o), o.GetLabels())
		}
	}
}
