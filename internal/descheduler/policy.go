// SPDX-License-Identifier: Apache-2.0

// Package descheduler reads the policies of sigs.k8s.io/descheduler, whose plugin
// RemovePodsViolatingNodeTaints evicts pods because of taints that evict no pods by
// themselves. It gets texts and objects, and does no I/O.
package descheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Plugin is the plugin that evicts pods because of taints. In v1alpha1, it was a strategy of
// the same name.
const Plugin = "RemovePodsViolatingNodeTaints"

// Policy is a DeschedulerPolicy.
type Policy struct {
	// ConfigMap is the namespace and name of the ConfigMap that contains the policy:
	// namespace/name.
	ConfigMap string
	// Nodes selects the nodes whose pods the descheduler may evict.
	Nodes labels.Selector
	// Profiles are the profiles in which the plugin is enabled.
	Profiles []Profile
}

// Profile is a profile in which the plugin is enabled.
type Profile struct {
	// Name is the name of the profile. Empty in v1alpha1, which has no profiles.
	Name string
	arguments
}

// arguments are those of the plugin that determine which taints it considers.
type arguments struct {
	IncludePreferNoSchedule bool     `json:"includePreferNoSchedule"`
	ExcludedTaints          []string `json:"excludedTaints"`
	// IncludedTaints limits the plugin to these taints, unless it is nil.
	IncludedTaints []string `json:"includedTaints"`
}

// Evicts reports whether the profile evicts pods that do not tolerate a taint of their node.
func (p *Profile) Evicts(t v1alpha1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoSchedule:
	case corev1.TaintEffectPreferNoSchedule:
		if !p.IncludePreferNoSchedule {
			return false
		}
	default:
		return false // NoExecute evicts pods without the descheduler
	}
	return !lists(p.ExcludedTaints, t) && (p.IncludedTaints == nil || lists(p.IncludedTaints, t))
}

// lists reports whether a list of keys, or of keys with values (key=value), has a taint.
func lists(list []string, t v1alpha1.Taint) bool {
	return slices.Contains(list, t.Key) || t.Value != "" && slices.Contains(list, t.Key+"="+t.Value)
}

// Describe returns which descheduler evicts: the profile, unless the policy has none, and the
// ConfigMap of the policy.
func (p *Policy) Describe(profile *Profile) string {
	if profile.Name == "" {
		return fmt.Sprintf("the descheduler (ConfigMap %s)", p.ConfigMap)
	}
	return fmt.Sprintf("profile %s of the descheduler (ConfigMap %s)", profile.Name, p.ConfigMap)
}

// Exemption returns what to change in the arguments of the plugin, so that it evicts nobody
// because of the taints. The plugin rejects arguments that have both lists.
func (p *Profile) Exemption(taints ...v1alpha1.Taint) string {
	var keys []string
	for _, t := range taints {
		if !slices.Contains(keys, t.Key) {
			keys = append(keys, t.Key)
		}
	}
	if len(p.IncludedTaints) > 0 {
		return fmt.Sprintf("its includedTaints are [%s]: remove %s", strings.Join(p.IncludedTaints, ", "), strings.Join(keys, ", "))
	}
	return fmt.Sprintf("its arguments need excludedTaints: [%s]", strings.Join(slices.Concat(p.ExcludedTaints, keys), ", "))
}

// document contains the fields of all versions of a policy that are read here.
type document struct {
	NodeSelector string `json:"nodeSelector"`
	// Profiles are those of v1alpha2.
	Profiles []struct {
		Name         string `json:"name"`
		PluginConfig []struct {
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"pluginConfig"`
		Plugins struct {
			Deschedule struct {
				Enabled []string `json:"enabled"`
			} `json:"deschedule"`
		} `json:"plugins"`
	} `json:"profiles"`
	// Strategies are those of v1alpha1.
	Strategies map[string]struct {
		Enabled bool            `json:"enabled"`
		Params  json.RawMessage `json:"params"`
	} `json:"strategies"`
}

// Parse returns the policy in a text, or nil if the text is something else.
func Parse(text string) (*Policy, error) {
	var is struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(text), &is); err != nil || is.Kind != "DeschedulerPolicy" || !strings.HasPrefix(is.APIVersion, "descheduler/") {
		return nil, nil //nolint:nilerr // a text that is not YAML is no policy
	}
	var d document
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("parsing DeschedulerPolicy: %w", err)
	}
	nodes, err := labels.Parse(d.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("parsing nodeSelector of DeschedulerPolicy: %w", err)
	}
	p := &Policy{Nodes: nodes}
	if p.Profiles, err = d.profiles(); err != nil {
		return nil, err
	}
	return p, nil
}

func (d *document) profiles() (all []Profile, err error) {
	add := func(name string, arguments json.RawMessage) {
		profile := Profile{Name: name}
		if len(arguments) > 0 && err == nil {
			err = json.Unmarshal(arguments, &profile.arguments)
		}
		all = append(all, profile)
	}
	for i := range d.Profiles {
		p := &d.Profiles[i]
		if !slices.Contains(p.Plugins.Deschedule.Enabled, Plugin) {
			continue
		}
		// The descheduler uses the first entry, and cannot build a plugin without one.
		for _, config := range p.PluginConfig {
			if config.Name == Plugin {
				add(p.Name, config.Args)
				break
			}
		}
	}
	if s := d.Strategies[Plugin]; s.Enabled {
		add("", s.Params)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing arguments of %s: %w", Plugin, err)
	}
	return all, nil
}
