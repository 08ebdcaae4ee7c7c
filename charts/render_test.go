// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/presets"
)

type object = map[string]any

// defaultGate is the preset of the chart's default gate.
const defaultGate = "required-daemonsets"

func TestLint(t *testing.T) {
	for _, values := range []object{{}, {"birth": "webhook", "evictPods": true}, {"gatesFromFiles": object{"enabled": true}}, {"agent": object{"enabled": true}}} {
		if output, err := helm(t, values, "lint", "--strict", chart); err != nil {
			t.Errorf("%v: %v\n%s", values, err, output)
		}
	}
}

// always and gateKeys are the objects that only the chart contains.
var (
	always = []string{
		"Deployment nodegate-system/nodegate", "PodDisruptionBudget nodegate-system/nodegate", "Service nodegate-system/nodegate-metrics",
	}
	gateKeys = []string{"NodeGate " + defaultGate}
)

// With the same options, the chart contains the output of 'nodegate manifests', and the
// objects that run nodegate.
func TestSameAsManifests(t *testing.T) {
	t.Parallel()
	options := install.Options{Namespace: namespace, ServiceAccount: "nodegate", AllowedTaintKeys: presets.TaintKeys()}
	for name, test := range map[string]struct {
		values  object
		version string
		change  func(*install.Options)
		also    []string
	}{
		"defaults": {object{}, "1.36.0", func(*install.Options) {}, gateKeys},
		"older":    {object{"webhook": object{"certificate": "existing"}}, "1.35.0", func(o *install.Options) { o.Birth = admission.ByWebhook }, gateKeys},
		"webhook by value": {
			object{"birth": "webhook", "webhook": object{"certificate": "existing"}}, "1.37.0", func(o *install.Options) { o.Birth = admission.ByWebhook }, gateKeys,
		},
		"policy by value": {object{"birth": "policy"}, "1.35.0", func(*install.Options) {}, gateKeys},
		"keys, stamps and evictions": {
			object{"allowedTaintKeys": []string{"z.example.com/z", "a", "a:NoExecute"}, "allowedStampAnnotations": []string{"example.com/Opened"}, "evictPods": true, "nodeConditions": true, "defaultGate": object{"enabled": false}},
			"1.37.0", func(o *install.Options) {
				o.AllowedTaintKeys, o.AllowedStampAnnotations, o.EvictPods = []string{"z.example.com/z", "a", "a:NoExecute"}, []string{"example.com/Opened"}, true
				o.NodeConditions = true
			}, nil,
		},
		"daemons' pods guarded": {
			object{"daemonPods": object{"guarded": true, "creators": []string{"system:serviceaccount:velero:velero", "b@example.com"}}}, "1.37.0", func(o *install.Options) {
				o.GuardDaemonPods, o.DaemonPodCreators = true, []string{"system:serviceaccount:velero:velero", "b@example.com"}
			}, gateKeys,
		},
		"observed kinds": {
			object{"observe": []object{{"group": "cilium.io", "resource": "ciliumnodes"}, {"resource": "configmaps"}}}, "1.37.0", func(o *install.Options) {
				o.Observe = []schema.GroupResource{{Group: "cilium.io", Resource: "ciliumnodes"}, {Resource: "configmaps"}}
			}, gateKeys,
		},
		"gates from files": {
			object{"gatesFromFiles": object{"enabled": true}, "evictPods": true, "birth": "webhook", "webhook": object{"certificate": "existing"}}, "1.37.0", func(o *install.Options) {
				o.WithoutCRD, o.EvictPods, o.Birth = true, true, admission.ByWebhook
			}, []string{"ConfigMap nodegate-system/nodegate-gates"},
		},
		"metrics for everyone": {
			object{"metrics": object{"secure": false, "readers": []object{{"namespace": "monitoring", "name": "prometheus"}}}}, "1.37.0",
			func(o *install.Options) { o.OpenMetrics = true }, gateKeys,
		},
		"metrics for some": {
			object{"metrics": object{"readers": []object{{"namespace": "monitoring", "name": "prometheus"}}}}, "1.37.0",
			func(*install.Options) {}, append([]string{"ClusterRoleBinding nodegate-metrics-readers"}, gateKeys...),
		},
		"monitoring": {
			object{"metrics": object{"serviceMonitor": object{"enabled": true}, "prometheusRule": object{"enabled": true}, "dashboard": object{"enabled": true}}, "priorityClassQuota": object{"enabled": true}},
			"1.37.0", func(*install.Options) {}, append([]string{
				"ServiceMonitor nodegate-system/nodegate", "PrometheusRule nodegate-system/nodegate", "ConfigMap nodegate-system/nodegate-dashboard",
				quota,
			}, gateKeys...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			test.change(&o)
			got := rendered(t, test.values, "--kube-version", test.version)
			differ(t, got, manifests(t, o), append(slices.Clone(always), test.also...))
		})
	}
}

// manifests returns the output of 'nodegate manifests' without the namespace, which Helm
// creates, and the CRD, which is in the crds/ directory of the chart.
func manifests(t tester, o install.Options) []*unstructured.Unstructured {
	t.Helper()
	all, err := install.Objects(o)
	must(t, err)
	var objects []*unstructured.Unstructured
	for _, one := range all {
		text, err := install.Marshal(one)
		must(t, err)
		parsed, err := testbed.ParseObjects(text)
		must(t, err)
		if parsed[0].GetKind() != "Namespace" {
			objects = append(objects, parsed...)
		}
	}
	return objects
}

// differ fails the test unless the objects are the wanted ones, and others with these keys.
func differ(t tester, got, want []*unstructured.Unstructured, others []string) {
	t.Helper()
	have := map[string]*unstructured.Unstructured{}
	for _, o := range got {
		if have[key(o)] != nil {
			t.Fatalf("%s exists twice", key(o))
		}
		have[key(o)] = o
	}
	for _, w := range want {
		h := have[key(w)]
		if h == nil {
			t.Fatalf("there is no %s", key(w))
		}
		if !reflect.DeepEqual(h.Object, w.Object) {
			t.Fatalf("%s is\n%v\nwant\n%v", key(w), h.Object, w.Object)
		}
		delete(have, key(w))
	}
	if left := slices.Sorted(maps.Keys(have)); !slices.Equal(left, slices.Sorted(slices.Values(others))) {
		t.Fatalf("objects besides the manifests: %q, want %q", left, others)
	}
}

// The chart's CRD, presets and default keys equal nodegate's.
func TestCopiesAreTrue(t *testing.T) {
	same := func(path string, want []byte) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s differs from its source: run 'make generate' (%v)", path, err)
		}
	}
	same(chart+"/crds/nodegates.yaml", crd.Manifest())
	var values struct {
		AllowedTaintKeys []string
		Presets          map[string]any
	}
	readYAML(t, chart+"/values.yaml", &values)
	if !slices.Equal(values.AllowedTaintKeys, presets.TaintKeys()) {
		t.Errorf("allowedTaintKeys are %q, want %q", values.AllowedTaintKeys, presets.TaintKeys())
	}
	for _, name := range presets.Names() {
		preset, err := presets.Read(name)
		must(t, err)
		same(chart+"/files/presets/"+name+".yaml", preset)
		if _, has := values.Presets[name]; has == (name == defaultGate) {
			t.Errorf("values.yaml has the preset %s: %t", name, has)
		}
	}
	if entries, err := os.ReadDir(chart + "/files/presets"); err != nil || len(entries) != len(presets.Names()) || len(values.Presets) != len(presets.Names())-1 {
		t.Errorf("%d files and %d values for %d presets (%v)", len(entries), len(values.Presets), len(presets.Names()), err)
	}
}

func deployment(t tester, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	return decoded[appsv1.Deployment](t, objects, always[0])
}

// For any allowed taints, nodegate tolerates their keys and the taints of a booting node,
// its command line lists them, and the guards allow it to change them.
func TestAllowedKeysAreToleratedAndNoOthers(t *testing.T) {
	t.Parallel() // Helm is started a hundred times
	label := `[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?`
	keys := rapid.SliceOfN(rapid.StringMatching(`(`+label+`(\.`+label+`)?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?(:(NoSchedule|PreferNoSchedule|NoExecute))?`), 1, 6)
	rapid.Check(t, func(t *rapid.T) {
		allowed := keys.Draw(t, "keys")
		where := rapid.StringMatching(label).Draw(t, "namespace")
		objects := rendered(t, object{"allowedTaintKeys": allowed, "defaultGate": object{"enabled": false}, "birth": "policy"}, "--namespace", where)
		o := install.Options{Namespace: where, ServiceAccount: "nodegate", AllowedTaintKeys: allowed}
		others := []string{}
		for _, name := range always {
			others = append(others, strings.ReplaceAll(name, namespace, where))
		}
		differ(t, objects, manifests(t, o), others)

		d := decoded[appsv1.Deployment](t, objects, others[0])
		if got, want := d.Spec.Template.Spec.Tolerations, install.Tolerations(allowed); !reflect.DeepEqual(got, want) {
			t.Fatalf("tolerations %v, want %v", got, want)
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--allowed-taint-keys="+strings.Join(allowed, ",")) || !slices.Contains(args, "--namespace="+where) {
			t.Fatalf("arguments %q", args)
		}
	})
}

// Nodegate's pods prefer nodes of the control plane, and run without them. Values can
// add to the affinity, and remove the preference.
func TestControlPlaneIsPreferred(t *testing.T) {
	t.Parallel()
	const role = "node-role.kubernetes.io/control-plane"
	required := object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{{"matchExpressions": []object{{"key": role, "operator": "Exists"}}}}}}
	for name, test := range map[string]struct {
		affinity            any
		preferred, required bool
	}{
		"default":     {object{}, true, false},
		"required":    {object{"nodeAffinity": required}, true, true},
		"no matter":   {object{"nodeAffinity": nil}, false, false},
		"other kinds": {object{"podAffinity": object{}}, true, false},
	} {
		spec := deployment(t, rendered(t, object{"affinity": test.affinity})).Spec.Template.Spec
		preferred, needed := false, false
		if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
			for _, term := range spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				preferred = term.Weight == 100 && term.Preference.MatchExpressions[0].Key == role && term.Preference.MatchExpressions[0].Operator == "Exists"
			}
			needed = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
		}
		if preferred != test.preferred || needed != test.required {
			t.Errorf("%s: preferred %t, required %t, of %v", name, preferred, needed, spec.Affinity)
		}
	}
}

// Whether gates are closed by policy depends on the API versions of the cluster if they are
// known, and on its version otherwise.
func TestBirthFollowsTheCluster(t *testing.T) {
	const kind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--kube-version", "1.33"}, "webhook"},
		{[]string{"--kube-version", "v1.35.4-eks-1234"}, "webhook"},
		{[]string{"--kube-version", "1.36"}, "policy"},
		{[]string{"--kube-version", "v1.36.0-gke.100"}, "policy"},
		{[]string{"--kube-version", "1.37.1"}, "policy"},
		{[]string{"--kube-version", "1.37", "--api-versions", "v1/Pod"}, "webhook"}, // disabled there
		{[]string{"--kube-version", "1.36", "--api-versions", "v1/Pod," + kind}, "policy"},
	} {
		d := deployment(t, rendered(t, nil, test.args...))
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--birth="+test.want) {
			t.Errorf("%v: %q, want %s", test.args, args, test.want)
		}
		if hook := d.Spec.Template.Spec.Containers[0].Lifecycle; (hook != nil) != (test.want == "webhook") {
			t.Errorf("%v: lifecycle %v", test.args, hook)
		}
	}
	_, err := helm(t, nil, "template", "nodegate", chart, "--kube-version", "1.32")
	if err == nil || !strings.Contains(err.Error(), "chart requires kubeVersion: >=1.33.0-0 which is incompatible with Kubernetes v1.32") {
		t.Errorf("1.32: %v", err)
	}
}
