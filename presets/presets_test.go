// SPDX-License-Identifier: Apache-2.0

package presets_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
	"github.com/nodegate/nodegate/presets"
)

// keys contains the taint keys of the presets. The default of --allowed-taint-keys
// contains all of them except the one that detaches volumes.
var keys = map[string]string{
	"aks-gpu":                       "startup-taint.cluster-autoscaler.kubernetes.io/nvidia-gpu-not-ready",
	"amd-gpu":                       "startup-taint.cluster-autoscaler.kubernetes.io/amd-gpu-not-ready",
	"calico":                        "startup-taint.cluster-autoscaler.kubernetes.io/calico-not-ready",
	"cilium":                        "node.cilium.io/agent-not-ready",
	"ebs-csi":                       "ebs.csi.aws.com/agent-not-ready",
	"efs-csi":                       "efs.csi.aws.com/agent-not-ready",
	"eks-gpu":                       "startup-taint.cluster-autoscaler.kubernetes.io/nvidia-gpu-not-ready",
	"eks-neuron":                    "startup-taint.cluster-autoscaler.kubernetes.io/neuron-not-ready",
	"falco":                         "startup-taint.cluster-autoscaler.kubernetes.io/falco-not-ready",
	"gcp-pd-csi":                    "pd.csi.storage.gke.io/not-ready",
	"gke-gpu":                       "startup-taint.cluster-autoscaler.kubernetes.io/nvidia-gpu-not-ready",
	"image-warm-up":                 "startup-taint.cluster-autoscaler.kubernetes.io/image-warm-up",
	"init-daemonset":                "startup.k8s.io/initializing",
	"intel-gpu":                     "startup-taint.cluster-autoscaler.kubernetes.io/intel-gpu-not-ready",
	"istio-ambient":                 "cni.istio.io/not-ready",
	"istio-cni":                     "cni.istio.io/not-ready",
	"kata":                          "startup-taint.cluster-autoscaler.kubernetes.io/kata-not-ready",
	"kuma":                          "NodeReadiness",
	"linkerd-cni":                   "startup-taint.cluster-autoscaler.kubernetes.io/linkerd-cni-not-ready",
	"multus":                        "startup-taint.cluster-autoscaler.kubernetes.io/multus-not-ready",
	"node-condition":                "readiness.k8s.io/node-checked",
	"node-local-dns":                "startup-taint.cluster-autoscaler.kubernetes.io/node-local-dns-not-ready",
	"node-problem-detector-plugins": "status-taint.cluster-autoscaler.kubernetes.io/node-check-failed",
	"node-problem-detector":         "status-taint.cluster-autoscaler.kubernetes.io/node-problem",
	"nvidia-gpu":                    "startup-taint.cluster-autoscaler.kubernetes.io/nvidia-gpu-not-ready",
	"out-of-service":                "node.kubernetes.io/out-of-service",
	"preflight":                     "startup-taint.cluster-autoscaler.kubernetes.io/preflight",
	"required-daemonsets":           "startup-taint.cluster-autoscaler.kubernetes.io/required-daemonsets",
	"secrets-store-csi":             "startup-taint.cluster-autoscaler.kubernetes.io/secrets-store-csi-not-ready",
	"spegel":                        "startup-taint.cluster-autoscaler.kubernetes.io/spegel-not-ready",
	"tetragon":                      "startup-taint.cluster-autoscaler.kubernetes.io/tetragon-not-ready",
	"whereabouts":                   "startup-taint.cluster-autoscaler.kubernetes.io/whereabouts-not-ready",
}

// A daemon that does not tolerate the taint of a preset's tool should still run on the
// node, whether or not the preset's gate exists.
func TestTaintsOfPresetsAreTransient(t *testing.T) {
	for _, name := range presets.Names() {
		if key := keys[name]; !(gate.Transient{}).Is(key) {
			t.Errorf("preset %s: the taint %s is not transient, so it would exclude daemons from the node", name, key)
		}
	}
}

func TestEveryPresetIsAValidGate(t *testing.T) {
	if len(presets.Names()) != len(keys) {
		t.Errorf("presets: %v", presets.Names())
	}
	for _, name := range presets.Names() {
		gate, err := crd.Decode(read(t, name))
		if err == nil {
			err = crd.Validate(gate)
		}
		if err == nil {
			_, err = signal.Compile(gate, v1alpha1.SourceCRD)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if gate.Name != name || gate.Spec.Taint.Key != keys[name] {
			t.Errorf("%s has the name %s and the key %s", name, gate.Name, gate.Spec.Taint.Key)
		}
		effect := corev1.TaintEffectNoSchedule
		if gate.Spec.Taint.Key == v1alpha1.TaintOutOfService {
			effect = corev1.TaintEffectNoExecute
		}
		if gate.Spec.Taint.Effect != effect {
			t.Errorf("%s has the effect %s: no other preset than out-of-service evicts", name, gate.Spec.Taint.Effect)
		}
	}
}

func TestTaintKeys(t *testing.T) {
	var want []string
	for name, key := range keys {
		if name != "out-of-service" {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want) // presets for the same devices share a key
	if got := presets.TaintKeys(); !slices.Equal(got, want) {
		t.Errorf("keys = %v, want %v", got, want)
	}
}

// sections are the sections of every preset's comment, in order.
var sections = []string{"Waits for", "Taint", "Autoscalers", "Toleration", "Other writer", "Adjust", "Source"}

func TestEveryPresetHasAComment(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^# ([A-Z][A-Za-z ]+): \S`)
	for _, name := range presets.Names() {
		text := string(read(t, name))
		if !strings.HasPrefix(text, "# "+name+": ") {
			t.Errorf("%s does not begin with its name", name)
		}
		var found []string
		for _, match := range heading.FindAllStringSubmatch(text, -1) {
			found = append(found, match[1])
		}
		if !slices.Equal(found, sections) {
			t.Errorf("%s has the sections %q, want %q", name, found, sections)
		}
		comment, _, _ := strings.Cut(text, "\napiVersion:")
		if !strings.Contains(comment, keys[name]) {
			t.Errorf("the comment of %s does not contain its key", name)
		}
		for line := range strings.Lines(text) {
			if len(strings.TrimSpace(line)) > 120 {
				t.Errorf("%s has a line of %d characters: %s", name, len(line), line)
			}
		}
	}
}

// The README has a row for each preset, with its key.
func TestReadmeListsEveryPreset(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range keys {
		row := regexp.MustCompile(`(?m)^\| \[` + name + `\]\(` + name + `\.yaml\) \| .*` + regexp.QuoteMeta(key))
		if !row.Match(page) {
			t.Errorf("there is no row for %s with %s", name, key)
		}
	}
}

func TestRead(t *testing.T) {
	for _, name := range []string{"none", "", "../presets/cilium", "cilium.yaml"} {
		if _, err := presets.Read(name); err == nil || !strings.Contains(err.Error(), "choose one of aks-gpu, amd-gpu") {
			t.Errorf("%q: %v", name, err)
		}
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != len(presets.Names()) {
		t.Errorf("files: %v (%v), names: %v", files, err, presets.Names())
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := presets.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
