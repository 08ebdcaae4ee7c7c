// SPDX-License-Identifier: Apache-2.0

package descheduler

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func policy(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse(text)
	if err != nil || p == nil {
		t.Fatalf("policy %v, error %v", p, err)
	}
	return p
}

// enabled returns a policy of v1alpha2 that enables the plugin with some arguments.
func enabled(arguments string) string {
	return `{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{name: p,
  pluginConfig: [{name: DefaultEvictor, args: {nodeFit: true}}, {name: RemovePodsViolatingNodeTaints, args: ` + arguments + `}],
  plugins: {deschedule: {enabled: [PodLifeTime, RemovePodsViolatingNodeTaints]}}}]}`
}

func old(strategy string) string {
	return "{apiVersion: descheduler/v1alpha1, kind: DeschedulerPolicy, strategies: {RemovePodsViolatingNodeTaints: " + strategy + "}}"
}

// The taints that make the plugin evict pods are those that the descheduler documents.
func TestEvicts(t *testing.T) {
	const noSchedule, prefer = corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule
	for name, c := range map[string]struct {
		policy string
		taint  v1alpha1.Taint
		want   bool
	}{
		"default":                        {enabled("{}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, true},
		"null arguments":                 {enabled("null"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, true},
		"NoExecute":                      {enabled("{}"), v1alpha1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}, false},
		"PreferNoSchedule":               {enabled("{}"), v1alpha1.Taint{Key: "a", Effect: prefer}, false},
		"PreferNoSchedule, if included":  {enabled("{includePreferNoSchedule: true}"), v1alpha1.Taint{Key: "a", Effect: prefer}, true},
		"PreferNoSchedule, but excluded": {enabled("{includePreferNoSchedule: true, excludedTaints: [a]}"), v1alpha1.Taint{Key: "a", Effect: prefer}, false},
		"excluded by key":                {enabled("{excludedTaints: [a]}"), v1alpha1.Taint{Key: "a", Value: "v", Effect: noSchedule}, false},
		"excluded by key and value":      {enabled("{excludedTaints: [a=v]}"), v1alpha1.Taint{Key: "a", Value: "v", Effect: noSchedule}, false},
		"another value is excluded":      {enabled("{excludedTaints: [a=w]}"), v1alpha1.Taint{Key: "a", Value: "v", Effect: noSchedule}, true},
		"no value":                       {enabled("{excludedTaints: ['a=']}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, true},
		"a prefix is not a key":          {enabled("{excludedTaints: [a]}"), v1alpha1.Taint{Key: "a/b", Effect: noSchedule}, true},
		"included":                       {enabled("{includedTaints: [a]}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, true},
		"others are included":            {enabled("{includedTaints: [b]}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, false},
		"none is included":               {enabled("{includedTaints: []}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, false},
		"v1alpha1":                       {old("{enabled: true}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, true},
		"v1alpha1, excluded":             {old("{enabled: true, params: {excludedTaints: [a]}}"), v1alpha1.Taint{Key: "a", Effect: noSchedule}, false},
	} {
		p := policy(t, c.policy)
		if len(p.Profiles) != 1 || p.Profiles[0].Evicts(c.taint) != c.want {
			t.Errorf("%s: profiles %+v, want one that evicts: %v", name, p.Profiles, c.want)
		}
	}
}

// Only profiles that enable the plugin count, and only the nodes that a policy selects.
func TestProfiles(t *testing.T) {
	for name, text := range map[string]string{
		"not enabled":            strings.Replace(enabled("{}"), "[PodLifeTime, RemovePodsViolatingNodeTaints]", "[PodLifeTime]", 1),
		"without configuration":  strings.Replace(enabled("{}"), "{name: RemovePodsViolatingNodeTaints", "{name: PodLifeTime", 1),
		"a balance plugin":       strings.Replace(enabled("{}"), "deschedule:", "balance:", 1),
		"v1alpha1, not enabled":  old("{enabled: false}"),
		"v1alpha1, no strategy":  "{apiVersion: descheduler/v1alpha1, kind: DeschedulerPolicy}",
		"v1alpha2, no profile":   "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: []}",
		"v1alpha1, null profile": "{apiVersion: descheduler/v1alpha1, kind: DeschedulerPolicy, strategies: null}",
	} {
		if p := policy(t, text); len(p.Profiles) > 0 {
			t.Errorf("%s: profiles %+v", name, p.Profiles)
		}
	}
	p := policy(t, "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, nodeSelector: 'a=b,c!=d'}")
	if !p.Nodes.Matches(labels.Set{"a": "b"}) || p.Nodes.Matches(labels.Set{"a": "b", "c": "d"}) {
		t.Errorf("selects %s", p.Nodes)
	}
}

// Other texts are no policies, and a policy that cannot be read is an error.
func TestParse(t *testing.T) {
	for _, text := range []string{"", "a", ":", "[a]", "kind: DeschedulerPolicy", "apiVersion: descheduler/v1alpha2", "{apiVersion: v1, kind: DeschedulerPolicy}"} {
		if p, err := Parse(text); p != nil || err != nil {
			t.Errorf("%q: policy %v, error %v", text, p, err)
		}
	}
	const head = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
	for _, text := range []string{head + "profiles: {}", head + "nodeSelector: '=='", enabled("{excludedTaints: a}"), old("{enabled: true, params: 1}")} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q: policy %v, and no error", text, p)
		}
	}
}

// Any text is parsed without a panic, and what is a policy selects nodes.
func FuzzParse(f *testing.F) {
	f.Add(enabled("{excludedTaints: [a]}"))
	f.Add(old("{enabled: true, params: {includePreferNoSchedule: true}}"))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if p != nil && (err != nil || p.Nodes == nil) {
			t.Errorf("policy %+v, error %v", p, err)
		}
	})
}

func TestConfigMaps(t *testing.T) {
	volumes := []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "policy"}}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}}, {},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "policy"}}},
		}}}},
		{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	for name, c := range map[string]struct {
		container corev1.Container
		want      []string
	}{
		"its image":           {corev1.Container{Image: "registry.k8s.io/descheduler/descheduler:v0.36.0"}, []string{"more", "policy"}},
		"a distribution's":    {corev1.Container{Image: "example.com:5000/ose-descheduler-rhel9@sha256:00"}, []string{"more", "policy"}},
		"its command":         {corev1.Container{Image: "example.com/tools", Command: []string{"/bin/descheduler"}}, []string{"more", "policy"}},
		"something else":      {corev1.Container{Image: "example.com/descheduler/web:v1", Command: []string{"/bin/web"}}, nil},
		"a similar parameter": {corev1.Container{Image: "web", Command: []string{"web"}, Args: []string{"descheduler"}}, nil},
	} {
		pod := corev1.PodSpec{Containers: []corev1.Container{{Image: "sidecar"}, c.container}, Volumes: volumes}
		if got := ConfigMaps(&pod); !slices.Equal(got, c.want) {
			t.Errorf("%s: reads %v, want %v", name, got, c.want)
		}
	}
}

// The exemption completes the list that the arguments have.
func TestExemption(t *testing.T) {
	for arguments, want := range map[string]string{
		"{}":                         "its arguments need excludedTaints: [a]",
		"{excludedTaints: [b, c=d]}": "its arguments need excludedTaints: [b, c=d, a]",
		"{includedTaints: [a, b]}":   "its includedTaints are [a, b]: remove a",
	} {
		p := policy(t, enabled(arguments))
		if got := p.Profiles[0].Exemption(v1alpha1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}); got != want {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
	}
	both := policy(t, enabled("{}")).Profiles[0].Exemption(v1alpha1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}, v1alpha1.Taint{Key: "b"}, v1alpha1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute})
	if want := "its arguments need excludedTaints: [a, b]"; both != want {
		t.Errorf("two keys: %q, want %q", both, want)
	}
}
