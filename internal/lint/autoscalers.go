// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Key prefixes that Cluster Autoscaler recognizes: startup taints are on nodes that are
// still starting, and status taints on nodes that are ready but take no further pods.
const (
	startupPrefix       = "startup-taint.cluster-autoscaler.kubernetes.io/"
	legacyStartupPrefix = "ignore-taint.cluster-autoscaler.kubernetes.io/"
	statusPrefix        = "status-taint.cluster-autoscaler.kubernetes.io/"
)

// readinessPrefix is the prefix of node-readiness-controller's taint keys. Karpenter treats
// them as temporary on a node that it has not initialized, without startupTaints.
const readinessPrefix = "readiness.k8s.io/"

// readinessKarpenter is the first version of Karpenter that recognizes readinessPrefix.
var readinessKarpenter = version.MustParseGeneric("1.13.0")

// karpenterImage is the image of Karpenter for AWS, which has Karpenter's version.
const karpenterImage = "public.ecr.aws/karpenter/controller"

// pool is a Karpenter NodePool.
type pool struct{ *unstructured.Unstructured }

func (p pool) taints(field string) []corev1.Taint {
	list, _, _ := unstructured.NestedSlice(p.Object, "spec", "template", "spec", field)
	var out []corev1.Taint
	for _, item := range list {
		fields, _ := item.(map[string]any)
		text := func(name string) string { value, _ := fields[name].(string); return value }
		out = append(out, corev1.Taint{Key: text("key"), Value: text("value"), Effect: corev1.TaintEffect(text("effect"))})
	}
	return out
}

// has reports whether a list of the pool's taints contains this key and effect.
func (p pool) has(field string, t v1alpha1.Taint) bool {
	return slices.ContainsFunc(p.taints(field), func(on corev1.Taint) bool { return on.Key == t.Key && on.Effect == t.Effect })
}

// anyValue are parts of the keys of labels that nodes of a pool can have without being listed
// in the pool. Karpenter and its providers use karpenter.sh, karpenter.k8s.aws and the like.
// EKS Auto Mode describes instances with eks.amazonaws.com/instance-; other labels of EKS, such
// as eks.amazonaws.com/nodegroup, are not on nodes of pools.
var anyValue = []string{"kubernetes.io/", "karpenter.", autoModeGroup + "/instance-"}

// autoModeGroup is the API group of the node classes of EKS Auto Mode.
const autoModeGroup = "eks.amazonaws.com"

// known returns the labels that all nodes of the pool have: those of its template, and those
// that Karpenter derives from the pool's name and node class.
func (p pool) known() labels.Set {
	set := labels.Set{"karpenter.sh/nodepool": p.GetName()}
	class, _, _ := unstructured.NestedStringMap(p.Object, "spec", "template", "spec", "nodeClassRef")
	if class["kind"] != "" {
		set[class["group"]+"/"+strings.ToLower(class["kind"])] = class["name"]
	}
	if class["group"] == autoModeGroup {
		set[autoModeGroup+"/compute-type"] = "auto"
	}
	template, _, _ := unstructured.NestedStringMap(p.Object, "spec", "template", "metadata", "labels")
	maps.Copy(set, template)
	return set
}

// selectedBy reports whether a gate may select nodes of the pool, according to the labels
// that all of its nodes have and to the pool's requirements. Other labels of Kubernetes itself,
// of Karpenter and of EKS Auto Mode may have any value.
func (p pool) selectedBy(s labels.Selector) bool {
	known, limits := p.known(), p.required()
	requirements, _ := s.Requirements()
	byKey := make(map[string]labels.Requirements)
	for i := range requirements {
		key := requirements[i].Key()
		byKey[key] = append(byKey[key], requirements[i])
	}
	for key, all := range byKey {
		sets := []labels.Set{known}
		anything := slices.ContainsFunc(anyValue, func(part string) bool { return strings.Contains(key, part) })
		if limit, limited := limits[key]; !known.Has(key) && (limited || anything) {
			all = append(all, limit...)
			for _, value := range representatives(all) {
				sets = append(sets, labels.Set{key: value})
			}
		}
		selector := labels.NewSelector().Add(all...)
		if !slices.ContainsFunc(sets, func(set labels.Set) bool { return selector.Matches(set) }) {
			return false
		}
	}
	return true
}

// representatives returns label values of each kind that the requirements distinguish: the
// values that they name, the integers next to these, and a text that none of them names.
func representatives(requirements labels.Requirements) []string {
	var values []string
	other := "x"
	for i := range requirements {
		for _, value := range requirements[i].ValuesUnsorted() {
			values = append(values, value)
			other += value
			if n, err := strconv.Atoi(value); err == nil {
				values = append(values, strconv.Itoa(n-1), strconv.Itoa(n+1))
			}
		}
	}
	return append(values, other)
}

// required returns the pool's requirements by label key. If several have the same key, all of
// them apply.
func (p pool) required() map[string]labels.Requirements {
	list, _, _ := unstructured.NestedSlice(p.Object, "spec", "template", "spec", "requirements")
	out := make(map[string]labels.Requirements)
	for _, item := range list {
		fields, _ := item.(map[string]any)
		key, _ := fields["key"].(string)
		operator, _ := fields["operator"].(string)
		values, _, _ := unstructured.NestedStringSlice(fields, "values")
		out[key] = append(out[key], requirement(key, operator, values))
	}
	return out
}

// poolOperators are the operators of requirements of NodePools. With all except DoesNotExist,
// Karpenter takes the label's value from the pods for which it launches the node, within the
// requirement.
var poolOperators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
	"Gt": selection.GreaterThan, "Gte": selection.GreaterThan, "Lt": selection.LessThan, "Lte": selection.LessThan,
}

// requirement converts a requirement of a NodePool. If its key, operator or values are not valid for
// a label selector, the label may have any value.
func requirement(key, operator string, values []string) labels.Requirement {
	if by := map[string]int{"Gte": -1, "Lte": 1}[operator]; by != 0 && len(values) == 1 {
		if n, err := strconv.Atoi(values[0]); err == nil {
			values = []string{strconv.Itoa(n + by)}
		}
	}
	r, err := labels.NewRequirement(key, poolOperators[operator], values)
	if err != nil {
		r, _ = labels.NewRequirement(key, selection.Exists, nil) // it is not nil, even if the key is not valid
	}
	return *r
}

// pools calls each for the NodePools whose nodes a gate may select.
func (j *checker) pools(s *subject, each func(pool)) {
	if s.Broken {
		return
	}
	for i := range j.NodePools {
		if p := (pool{&j.NodePools[i]}); p.selectedBy(s.Selector) {
			each(p)
		}
	}
}

func karpenterStartupTaintMissing(j *checker, s *subject) (hits []hit) {
	suffix := ""
	if strings.HasPrefix(s.Taint.Key, readinessPrefix) {
		v := j.karpenterVersion()
		if v == nil || v.AtLeast(readinessKarpenter) {
			return nil
		}
		suffix = fmt.Sprintf("; Karpenter recognizes keys with the prefix %s since version %s, and this cluster has %s", readinessPrefix, readinessKarpenter, v)
	}
	j.unlisted(s, func(p pool) {
		hits = append(hits, hit{"nodepool/" + p.GetName(), fmt.Sprintf("startupTaints of NodePool %s do not contain %s, which the gate adds to the pool's new nodes%s", p.GetName(), gate.TaintText(s.Taint), suffix)})
	})
	return hits
}

func karpenterVersionUnknown(j *checker, s *subject) (hits []hit) {
	if !strings.HasPrefix(s.Taint.Key, readinessPrefix) || j.karpenterVersion() != nil {
		return nil
	}
	j.unlisted(s, func(p pool) {
		hits = append(hits, hit{"nodepool/" + p.GetName(), fmt.Sprintf("startupTaints of NodePool %s do not contain %s, and the version of Karpenter is unknown", p.GetName(), gate.TaintText(s.Taint))})
	})
	return hits
}

// unlisted calls each for the NodePools whose new nodes a gate may close and whose taints do
// not contain the gate's.
func (j *checker) unlisted(s *subject, each func(pool)) {
	if !s.waits() {
		return
	}
	j.pools(s, func(p pool) {
		if t := s.Taint; !p.has("startupTaints", t) && !p.has("taints", t) {
			each(p)
		}
	})
}

func karpenterPermanentTaint(j *checker, s *subject) (hits []hit) {
	j.pools(s, func(p pool) {
		for _, t := range s.Taints() {
			if p.has("taints", t) {
				hits = append(hits, hit{"nodepool/" + p.GetName(), fmt.Sprintf("taints of NodePool %s contain %s", p.GetName(), gate.TaintText(t))})
			}
		}
	})
	return hits
}

// recloseWithStartupKey finds startup keys of Cluster Autoscaler in gates that close on nodes in
// use. Closing on a rebooting node does not count: such a node is starting again. Karpenter regards
// startupTaints as temporary only until it has initialized the node.
func recloseWithStartupKey(_ *checker, s *subject) (hits []hit) {
	if !s.closesInUse() {
		return nil
	}
	again := s.TaintInUse()
	if strings.HasPrefix(again.Key, startupPrefix) || strings.HasPrefix(again.Key, legacyStartupPrefix) {
		hits = append(hits, hit{"", fmt.Sprintf("the gate closes nodes in use with %s, a startup taint of Cluster Autoscaler", gate.TaintText(again))})
	}
	return hits
}

func closesExisting(s *subject) bool {
	return s.Existing == v1alpha1.ExistingClose || s.Existing == v1alpha1.ExistingCloseIfIdle
}

func autoscalerDoesNotKnowKey(j *checker, s *subject) (hits []hit) {
	if s.closesOnLostNodes() {
		return nil
	}
	for i := range j.Deployments {
		d := &j.Deployments[i]
		args, is := autoscalerArgs(d)
		if !is {
			continue
		}
		for _, t := range s.Taints() {
			if t.Effect != corev1.TaintEffectPreferNoSchedule && !knowsKey(args, t.Key) {
				hits = append(hits, hit{"deployment/" + deploymentName(d), fmt.Sprintf("Cluster Autoscaler (Deployment %s) is not configured for taint key %s", deploymentName(d), t.Key)})
			}
		}
	}
	return hits
}

// autoscalerArgs returns the command line of a Deployment if it is Cluster Autoscaler. One without replicas
// is stopped, for example because Karpenter has replaced it.
func autoscalerArgs(d *appsv1.Deployment) ([]string, bool) {
	if ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return nil, false
	}
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		line := slices.Concat(c.Command, c.Args)
		isIt := func(word string) bool {
			return word == "cluster-autoscaler" || strings.HasSuffix(word, "/cluster-autoscaler")
		}
		image, _, _ := strings.Cut(c.Image, "@")
		if slash := strings.LastIndex(image, "/"); strings.LastIndex(image, ":") > slash {
			image = image[:strings.LastIndex(image, ":")]
		}
		if slices.ContainsFunc(line, isIt) || isIt(image) {
			return line, true
		}
	}
	return nil, false
}

// karpenterVersion returns the oldest version of Karpenter for AWS among the Deployments, or
// nil if it is unknown. The versions of other providers do not correspond to Karpenter's.
func (j *checker) karpenterVersion() *version.Version {
	var oldest *version.Version
	for i := range j.Deployments {
		for _, c := range j.Deployments[i].Spec.Template.Spec.Containers {
			tag, is := strings.CutPrefix(c.Image, karpenterImage)
			if !is {
				continue
			}
			tag, _, _ = strings.Cut(strings.TrimPrefix(tag, ":"), "@")
			v, err := version.ParseGeneric(tag)
			if err != nil {
				return nil
			}
			if oldest == nil || v.LessThan(oldest) {
				oldest = v
			}
		}
	}
	return oldest
}

func knowsKey(args []string, key string) bool {
	for _, prefix := range []string{startupPrefix, legacyStartupPrefix, statusPrefix} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	for i, arg := range args {
		name, value, inline := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		if (name == "startup-taint" || name == "status-taint" || name == "ignore-taint") && value == key {
			return true
		}
		if name == "startup-taint-prefix" && value != "" && strings.HasPrefix(key, value) {
			return true
		}
	}
	return false
}
