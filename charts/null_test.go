// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"reflect"
	"strings"
	"testing"
)

// Helm removes a value that is null, also its default. Without some values, the chart would install
// a nodegate that does not start, or one that is not confined: these are required.
func TestRequiredValues(t *testing.T) {
	t.Parallel()
	for _, values := range []object{
		{
			"birth": nil, "allowedTaintKeys": nil, "healthPort": nil, "metrics": object{"port": nil, "secure": nil}, "image": object{"repository": nil},
			"agent":   object{"namespace": nil, "pluginDir": nil, "image": object{"repository": nil}},
			"webhook": object{"certificate": nil, "clientCA": object{"key": nil}}, "defaultGate": object{"namespaces": nil},
			"imageWarmUp": object{"nodeSelector": nil, "pauseImage": nil},
		},
		{
			"image": nil, "webhook": nil, "agent": nil, "daemonPods": nil, "defaultGate": nil, "imageWarmUp": nil, "gatesFromFiles": nil, "crds": nil,
			"metrics": nil, "networkPolicy": nil, "priorityClassQuota": nil,
		},
		{"agent": object{"image": nil}, "metrics": object{"serviceMonitor": nil, "prometheusRule": nil, "dashboard": nil}},
	} {
		output, err := helm(t, values, "template", "nodegate", chart)
		if err == nil || output != "" {
			t.Errorf("%v is rendered, with the error %v", values, err)
			continue
		}
		for _, name := range nulls(values) {
			if !strings.Contains(err.Error(), "'"+name+"'") {
				t.Errorf("the error does not name %s: %v", name, err)
			}
		}
	}
}

// nulls returns the names of the values that are null.
func nulls(values object) (names []string) {
	for name, value := range values {
		if inner, is := value.(object); is {
			names = append(names, nulls(inner)...)
		} else if value == nil {
			names = append(names, name)
		}
	}
	return names
}

// All other values can be null.
func TestOptionalValues(t *testing.T) {
	t.Parallel()
	objects := rendered(t, object{
		"replicas": nil, "imagePullSecrets": nil, "allowedStampAnnotations": nil, "transientTaintPrefixes": nil, "observe": nil, "presets": nil,
		"gates": nil, "nodeSelector": nil, "affinity": nil, "resources": nil, "priorityClassName": nil, "extraTolerations": nil, "extraArgs": nil,
		"podAnnotations": nil, "podLabels": nil, "daemonPods": object{"guarded": true, "creators": nil}, "webhook": object{"clientCA": nil, "issuerRef": nil},
		"agent":         object{"enabled": true, "resources": nil, "nodeSelector": nil},
		"imageWarmUp":   object{"images": []string{"example.com/a:1"}, "resources": nil, "tolerations": nil},
		"networkPolicy": object{"enabled": true, "metricsFrom": nil, "webhookFrom": nil, "egress": nil},
		"metrics":       object{"readers": nil, "certificateSecret": nil, "dashboard": object{"enabled": true, "labels": nil}},
	})
	if got := deployment(t, objects).Spec.Template.Spec.Affinity; got != nil {
		t.Errorf("the affinity is %v, want none", got)
	}
}

// As elsewhere in Helm, null in the spec of a preset or of the default gate removes a field. As the value
// of a label, the API server would read it as the empty value, which no node has.
func TestNullRemovesFieldsOfPresets(t *testing.T) {
	t.Parallel()
	selector := object{"matchLabels": object{"kubernetes.io/os": nil, "pool": "a"}}
	values := object{
		"defaultGate": object{"spec": object{"nodeSelector": selector}},
		"presets":     object{"cilium": object{"enabled": true, "spec": object{"nodeSelector": selector, "timing": object{"closeAfterSeconds": nil}, "reclosePolicy": nil}}},
	}
	objects := rendered(t, values)
	for _, name := range []string{defaultGate, "cilium"} {
		spec := find(t, objects, "NodeGate "+name).Object["spec"].(object)
		if got := nulls(spec); len(got) > 0 {
			t.Errorf("%s contains null as %q", name, got)
		}
		if got, want := spec["nodeSelector"], any(object{"matchLabels": object{"pool": "a"}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s selects %v, want %v", name, got, want)
		}
	}
	if got, want := find(t, objects, "NodeGate cilium").Object["spec"].(object)["timing"], any(object{"rolloutGraceSeconds": float64(0)}); !reflect.DeepEqual(got, want) {
		t.Errorf("cilium has the timing %v, want %v", got, want)
	}
}
