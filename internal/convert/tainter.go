// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// TainterOptions are options for reading a configuration of Tainter.
type TainterOptions struct {
	// Format is toml, yaml or json. If empty, it is derived from the extension of the name.
	Format string
	// Anchor makes patterns match whole types and statuses. Tainter searches for them
	// anywhere.
	Anchor bool
}

const tainterTool = "Tainter"

// tainter converts one configuration.
type tainter struct {
	*converter
	anchor bool
	// shared contains the line of the first matcher by key and effect of the taint.
	shared map[[2]string]int
	// patterns is a cache of parsed patterns.
	patterns map[string]*pattern
}

// Tainter converts a configuration of LasseHels/tainter. Each matcher becomes a gate that
// is closed while all of its conditions match.
func Tainter(source Source, options TainterOptions) *Result {
	t := tainter{newConverter(tainterTool, source), options.Anchor, map[[2]string]int{}, map[string]*pattern{}}
	if root := t.parse(options.Format); root != nil {
		t.configuration(root)
	}
	return t.result()
}

func (t *tainter) parse(format string) *yaml.Node {
	if format == "" {
		format = strings.TrimPrefix(path.Ext(t.source.Name), ".")
	}
	switch strings.ToLower(format) {
	case "toml", "":
		return t.readTOML(t.source.Data)
	case "yaml", "yml":
		return t.single(t.readYAML(t.source.Data))
	case "json":
		return t.single(t.readJSON(t.source.Data))
	}
	t.errorf(0, "Tainter also reads %s, but nodegate does not: use TOML, YAML or JSON, and specify the format with --format if needed", format)
	return nil
}

func (t *tainter) configuration(root *yaml.Node) {
	all, ok := t.mapping(root, "the configuration", "server", "log", "reconciler")
	if !ok {
		return
	}
	if s, ok := all["server"]; ok {
		t.mapping(s.Node, "server", "host", "port")
	}
	if l, ok := all["log"]; ok {
		t.mapping(l.Node, "log", "max_level")
	}
	if !t.required(all, "reconciler", "the configuration", root.Line) {
		return
	}
	reconciler, ok := t.mapping(all["reconciler"].Node, "reconciler", "matchers")
	if !ok || !t.required(reconciler, "matchers", "reconciler", all["reconciler"].line) {
		return
	}
	if all.has("server") || all.has("log") {
		t.noteInput("server and log do not apply to gates; see 'nodegate controller --help'")
	}
	matchers := t.items(reconciler["matchers"], "matchers")
	for _, m := range matchers {
		t.matcher(m)
	}
	if reconciler["matchers"].Kind == yaml.SequenceNode && len(matchers) == 0 {
		t.errorf(reconciler["matchers"].line, "matchers is empty: there is nothing to convert")
	}
	t.noteDifferences()
}

// noteDifferences adds the notes that apply to all gates.
func (t *tainter) noteDifferences() {
	if len(t.gates) == 0 {
		return
	}
	t.noteInput("every node is selected, including control planes, because Tainter has no selector: narrow nodeSelector if possible")
	t.noteInput(fmt.Sprintf(unbudgetedNote, t.tool))
	if slices.ContainsFunc(t.gates, func(g Gate) bool { return g.NodeGate.Spec.Reopen == v1alpha1.ReopenManual }) {
		t.noteInput("Tainter never removes a taint, and with reopen: Manual nodegate leaves this to a user; remove reopen to have nodegate " +
			"remove the taint when its conditions clear. After a user has removed the taint, Tainter would add it again immediately; " +
			"nodegate adds it again only after the conditions have cleared")
	}
	t.noteInput("a taint with the same key and effect but another value is corrected; Tainter leaves it")
}

// matcher converts one matcher.
func (t *tainter) matcher(n *yaml.Node) {
	n = resolve(n)
	m, ok := t.mapping(n, "the matcher", "taint", "conditions")
	if !ok {
		return
	}
	taint, ok := t.taint(m, n.Line)
	if !t.required(m, "conditions", "the matcher", n.Line) {
		return
	}
	conditions := t.items(m["conditions"], "conditions")
	if m["conditions"].Kind == yaml.SequenceNode && len(conditions) == 0 {
		t.errorf(m["conditions"].line, "without conditions, Tainter taints every node of the cluster, but nodegate does not: add a condition")
	}
	var read []tainterCondition
	for _, condition := range conditions {
		if r, ok := t.condition(condition); ok {
			read = append(read, r)
		}
	}
	if !ok || len(read) < len(conditions) || len(read) == 0 {
		return
	}
	if !slices.ContainsFunc(read, func(r tainterCondition) bool { return !r.matchesAll() }) {
		t.errorf(m["conditions"].line, "the conditions match every node of the cluster, for which nodegate does not add a taint: "+
			"add a condition that only some nodes have")
		return
	}
	t.gate(n.Line, taint, read)
}

// taint returns the taint of a matcher.
func (t *tainter) taint(m fields, line int) (v1alpha1.Taint, bool) {
	if !t.required(m, "taint", "the matcher", line) {
		return v1alpha1.Taint{}, false
	}
	line = m["taint"].line
	f, ok := t.mapping(m["taint"].Node, "taint", "effect", "key", "value")
	if !ok {
		return v1alpha1.Taint{}, false
	}
	effect, hasEffect := t.text(f, "effect", "taint", line)
	key, hasKey := t.text(f, "key", "taint", line)
	value, hasValue := t.text(f, "value", "taint", line)
	if hasEffect && !isEffect(effect) {
		t.errorf(f["effect"].line, "the effect is %q, want NoSchedule, PreferNoSchedule or NoExecute", effect)
		return v1alpha1.Taint{}, false
	}
	return v1alpha1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, hasEffect && hasKey && hasValue
}

func isEffect(effect string) bool {
	return slices.Contains([]corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
	}, corev1.TaintEffect(effect))
}

// tainterCondition is one condition of a matcher.
type tainterCondition struct {
	line         int
	kind, status *pattern
	exact, expr  [2]string // of type and status
	// matches contains functions that report whether the gate's type and status match.
	matches [2]func(string) bool
}

func (r *tainterCondition) matchesAll() bool {
	return matchesAll(r.matches[0]) && matchesAll(r.matches[1])
}

// healthy contains the conditions of a healthy node.
var healthy = []corev1.NodeCondition{
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse},
}

// matchesHealthy reports whether a healthy node matches the condition.
func (r *tainterCondition) matchesHealthy() bool {
	return slices.ContainsFunc(healthy, func(c corev1.NodeCondition) bool {
		return r.matches[0](string(c.Type)) && r.matches[1](string(c.Status))
	})
}

func (t *tainter) condition(n *yaml.Node) (tainterCondition, bool) {
	n = resolve(n)
	r := tainterCondition{line: n.Line}
	f, ok := t.mapping(n, "the condition", "type", "status")
	if !ok {
		return r, false
	}
	patterns := [2]*pattern{}
	for i, key := range []string{"type", "status"} {
		if patterns[i] = t.pattern(f, key, n.Line); patterns[i] == nil {
			ok = false
			continue
		}
		r.exact[i], r.expr[i] = patterns[i].gate()
		r.matches[i] = patterns[i].matches
		if t.anchor {
			r.exact[i], r.expr[i] = patterns[i].whole()
			r.matches[i] = patterns[i].matchesWhole
		}
	}
	r.kind, r.status = patterns[0], patterns[1]
	return r, ok
}

// pattern returns a regular expression, which may be empty.
func (t *tainter) pattern(f fields, key string, line int) *pattern {
	if !t.required(f, key, "the condition", line) {
		return nil
	}
	text, ok := t.str(f[key], key)
	if !ok {
		return nil
	}
	if p, known := t.patterns[text]; known {
		return p
	}
	p, err := readPattern(text)
	if err != nil {
		t.errorf(f[key].line, "the %s %q cannot be converted: %s", key, text, err)
		return nil
	}
	t.patterns[text] = p
	return p
}

// gate adds the gate for a matcher.
func (t *tainter) gate(line int, taint v1alpha1.Taint, conditions []tainterCondition) {
	spec := v1alpha1.NodeGateSpec{Taint: taint, Reopen: v1alpha1.ReopenManual, Budget: unbudgeted()}
	if taint.Key == v1alpha1.TaintOutOfService {
		spec.Reopen = "" // nodegate removes this taint when the node reports again
	}
	signals := names{}
	for _, c := range conditions {
		name := c.kind.text
		if label(name) == "" {
			name = "condition"
		}
		signal := v1alpha1.Signal{Name: signals.unique(name)}
		signal.Condition = &v1alpha1.ConditionSignal{
			Type: c.exact[0], TypePattern: c.expr[0], Status: c.exact[1], StatusPattern: c.expr[1],
		}
		spec.CloseWhen = append(spec.CloseWhen, signal)
	}
	g := t.add(line, ofTaint(taint.Key, taint.Value), spec)
	at := [2]string{taint.Key, string(taint.Effect)}
	if before, ok := t.shared[at]; ok {
		t.noteGate(g, line, "the gate shares its taint with the matcher in line %d: the taint is on a node while one or both of them match; "+
			"Tainter fails to write the taint if both match", before)
	} else {
		t.shared[at] = line
	}
	for i := range conditions {
		t.noteCondition(g, &conditions[i])
	}
	if !slices.ContainsFunc(conditions, func(c tainterCondition) bool { return !c.matchesHealthy() }) {
		t.noteGate(g, line, "a healthy node matches (Ready is True, and the pressure conditions are False): the gate closes on every healthy node")
	}
}

// noteCondition adds notes if a condition matches more than its text suggests, or
// something else.
func (t *tainter) noteCondition(g *Gate, c *tainterCondition) {
	for i, p := range []*pattern{c.kind, c.status} {
		key := [2]string{"type", "status"}[i]
		if p.ascii != "" {
			t.noteGate(g, c.line, "the %s %q: here, %s refers to ASCII; in Tainter, to all of Unicode", key, p.text, p.ascii)
		}
	}
	if !c.kind.loose() && !c.status.loose() {
		return
	}
	text := fmt.Sprintf("%s=%s", c.kind.text, c.status.text)
	if t.anchor {
		t.noteGate(g, c.line, "with --anchor, %q matches whole types and statuses; Tainter finds it anywhere%s", text, also(c.kind))
		return
	}
	t.noteGate(g, c.line, "%q is found anywhere in a type and a status%s, which the gate preserves; with --anchor, it matches them as a whole", text, also(c.kind))
}

// known are condition types that are common on nodes, or that are easily matched by
// mistake.
var known = []string{
	"Ready", "NotReady", "PodsReady", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock",
	"ReadonlyFilesystem", "FrequentKubeletRestart", "FrequentContainerdRestart", "FrequentUnregisterNetDevice",
}

// also returns a phrase with the other types that the pattern matches, or "".
func also(p *pattern) string {
	text, ok := p.literal()
	if !ok || !p.loose() {
		return ""
	}
	var hits []string
	for _, kind := range known {
		if kind != text && p.matches(kind) {
			hits = append(hits, kind)
		}
	}
	if len(hits) == 0 {
		return ""
	}
	return ", including " + list(hits)
}
