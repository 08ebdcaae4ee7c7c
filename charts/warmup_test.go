// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/presets"
)

const warmUp = "image-warm-up"

// warmUpDaemon returns the DaemonSet that pulls images.
func warmUpDaemon(t tester, values object) *appsv1.DaemonSet {
	t.Helper()
	return decoded[appsv1.DaemonSet](t, rendered(t, values), "DaemonSet "+namespace+"/"+warmUp)
}

// Without images, the chart has neither the DaemonSet nor the gate.
func TestImageWarmUpIsOptional(t *testing.T) {
	objects := rendered(t, nil)
	if gatesOf(t, objects)[warmUp] != nil {
		t.Error("the gate is rendered without images")
	}
	for _, o := range objects {
		if o.GetName() == warmUp {
			t.Errorf("%s is rendered without images", key(o))
		}
	}
}

// With images, the chart has both: the gate waits for the DaemonSet, on the nodes on which the
// DaemonSet runs, also if the gate comes from a file or is changed as a preset.
func TestImageWarmUpBringsDaemonSetAndGate(t *testing.T) {
	images := []string{"registry.example.com/a:v1", "registry.example.com/b@sha256:" + strings.Repeat("0a", 32)}
	of := object{"images": images, "nodeSelector": object{"pool": "gpu"}}
	for name, values := range map[string]object{
		"alone":              {},
		"gates from files":   {"gatesFromFiles": object{"enabled": true}},
		"preset enabled too": {"presets": object{warmUp: object{"enabled": true}}},
	} {
		t.Run(name, func(t *testing.T) {
			values["imageWarmUp"] = of
			ds := warmUpDaemon(t, values)
			ng := gatesOf(t, rendered(t, values))[warmUp]
			if ng == nil {
				t.Fatal("there is no gate")
			}
			want := map[string]string{"kubernetes.io/os": "linux", "pool": "gpu"}
			if got := ng.Spec.NodeSelector.MatchLabels; !maps.Equal(got, want) || !maps.Equal(ds.Spec.Template.Spec.NodeSelector, want) {
				t.Errorf("the gate selects %v, the DaemonSet %v", got, ds.Spec.Template.Spec.NodeSelector)
			}
			if s := ng.Spec.OpenWhen[0].DaemonSet; len(ng.Spec.OpenWhen) != 1 || s.Namespace != ds.Namespace || s.Name != ds.Name {
				t.Errorf("the gate waits for %+v", ng.Spec.OpenWhen)
			}
			if ng.Spec.Deadline != nil {
				t.Errorf("the gate has the deadline %+v", ng.Spec.Deadline)
			}
			pullsImages(t, ds, images)
		})
	}
}

// pullsImages verifies that the DaemonSet pulls these images without starting a program of
// them, and that all gates admit it to a node.
func pullsImages(t *testing.T, ds *appsv1.DaemonSet, images []string) {
	t.Helper()
	pod := ds.Spec.Template.Spec
	var pulled []string
	for _, c := range pod.InitContainers[1:] {
		pulled = append(pulled, c.Image)
		if !slices.Equal(c.Command, []string{"/warm-up/nodegate", "--version"}) || c.VolumeMounts[0].MountPath != "/warm-up" || !c.VolumeMounts[0].ReadOnly {
			t.Errorf("container %s runs %q with the mounts %v", c.Name, c.Command, c.VolumeMounts)
		}
	}
	if !slices.Equal(pulled, images) {
		t.Errorf("pulls %q, want %q", pulled, images)
	}
	first := pod.InitContainers[0]
	if !strings.Contains(first.Image, "nodegate/nodegate:") || !slices.Equal(first.Args, []string{"copy", "/warm-up"}) || first.VolumeMounts[0].ReadOnly {
		t.Errorf("first runs %q %q with the mounts %v", first.Image, first.Args, first.VolumeMounts)
	}
	for _, taintKey := range presets.TaintKeys() {
		if !gate.Tolerates(pod.Tolerations, corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule}) {
			t.Errorf("does not tolerate %s", taintKey)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if !ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false) || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("container %s has %+v and %+v", c.Name, c.SecurityContext, c.Resources)
		}
	}
	if ptr.Deref(pod.AutomountServiceAccountToken, true) {
		t.Error("the pods have a token")
	}
}

// The deadline, tolerations and pull secrets have values. Other fields of the gate are those of
// the preset.
func TestImageWarmUpValues(t *testing.T) {
	values := object{
		"imagePullSecrets": []object{{"name": "registry"}},
		"imageWarmUp": object{
			"images": []string{"registry.example.com/a:v1"}, "deadlineSeconds": 900, "pauseImage": "registry.example.com/pause:3",
			"tolerations": []object{{"key": "nvidia.com/gpu", "operator": "Exists"}},
		},
		"presets": object{warmUp: object{"spec": object{"openedAtAnnotation": "example.com/opened"}}},
	}
	ng, pod := gatesOf(t, rendered(t, values))[warmUp], warmUpDaemon(t, values).Spec.Template.Spec
	if d := ng.Spec.Deadline; d == nil || d.ReadySeconds == nil || *d.ReadySeconds != 900 || d.Action != "Open" || ng.Spec.OpenedAtAnnotation != "example.com/opened" {
		t.Errorf("the gate is %+v", ng.Spec)
	}
	if !gate.Tolerates(pod.Tolerations, corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}) || pod.ImagePullSecrets[0].Name != "registry" ||
		pod.Containers[0].Image != "registry.example.com/pause:3" {
		t.Errorf("the pod is %+v", pod)
	}
	output, err := helm(t, values, "install", "nodegate", chart, "--namespace", namespace, "--dry-run=client")
	must(t, err)
	if !strings.Contains(output, "until the DaemonSet image-warm-up has pulled 1 image on them") {
		t.Error("the notes do not mention the images")
	}
}

func TestBadImageWarmUp(t *testing.T) {
	image := []string{"registry.example.com/a:v1"}
	for want, values := range map[string]object{
		"at '/imageWarmUp/images/0': 'a b' does not match pattern":                    {"imageWarmUp": object{"images": []string{"a b"}}},
		"at '/imageWarmUp/images': items at 0 and 1 are equal":                        {"imageWarmUp": object{"images": []string{"a", "a"}}},
		"at '/imageWarmUp/images': got string, want array":                            {"imageWarmUp": object{"images": "a"}},
		"at '/imageWarmUp': additional properties 'image' not allowed":                {"imageWarmUp": object{"image": "a"}},
		"at '/imageWarmUp/deadlineSeconds': minimum: got -1, want 0":                  {"imageWarmUp": object{"deadlineSeconds": -1}},
		"presets.image-warm-up.spec has nodeSelector, which follows from imageWarmUp": {"imageWarmUp": object{"images": image}, "presets": object{warmUp: object{"spec": object{"nodeSelector": object{}}}}},
		"gate image-warm-up has the taint":                                            {"imageWarmUp": object{"images": image}, "allowedTaintKeys": []string{requiredKey}},
	} {
		if output, err := helm(t, values, "template", "nodegate", chart); err == nil || !strings.Contains(err.Error(), want) || output != "" {
			t.Errorf("%v: %v; want %q", values, err, want)
		}
	}
}

// The API server accepts the DaemonSet, and admits its pods to a namespace with the strictest
// Pod Security Standard.
func TestImageWarmUpIsAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "1.37")
	w.apply([]*unstructured.Unstructured{restrictedNamespace()})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	must(t, w.admin.Create(w.Context(), account)) // no controller creates it here
	ds := warmUpDaemon(t, object{"imageWarmUp": object{"images": []string{"registry.example.com/a:v1", "registry.example.com/b:v1"}}})
	must(t, w.admin.Create(w.Context(), ds.DeepCopy(), client.DryRunAll))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, Spec: ds.Spec.Template.Spec}
	must(t, w.admin.Create(w.Context(), pod, client.DryRunAll))
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "two"}, Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Spec.InitContainers[1].SecurityContext.Capabilities = nil
	if err := w.admin.Create(w.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod with capabilities: %v; want it to be forbidden", err)
	}
}
