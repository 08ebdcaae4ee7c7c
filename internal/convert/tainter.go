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

// TainterOptions say how to read a configuration of Tainter.
type TainterOptions struct {
	// Format is toml, yaml or json; empty goes by the name's ending.
	Format string
	// Anchor has patterns match whole types and statuses, where Tainter looks for
	// them anywhere.
	Anchor bool
}

const tainterTool = "Tainter"

// tainter converts one configuration.
type tainter struct {
	*converter
	anchor bool
	// shared counts the matchers before by key and effect of their taint.
	shared map[[2]string]int
	// patterns are those read before.
	patterns map[string]*pattern
}

// Tainter converts a configuration of LasseHels/tainter. Each matcher becomes a
// gate that is closed while all of its conditions match.
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
	t.lose(0, "Tainter reads %s too, nodegate does not: write it as TOML, YAML or JSON, or say with --format which of these it is", format)
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
	if !all.has("reconciler") {
		t.lose(root.Line, `the configuration has no "reconciler", and Tainter needs it`)
		return
	}
	reconciler, ok := t.mapping(all["reconciler"].Node, "reconciler", "matchers")
	if !ok {
		return
	}
	if !reconciler.has("matchers") {
		t.lose(all["reconciler"].line, `reconciler has no "matchers", and Tainter needs it`)
		return
	}
	if all.has("server") || all.has("log") {
		t.tell("server and log are not for gates; see 'nodegate controller --help'")
	}
	matchers := t.items(reconciler["matchers"], "matchers")
	for _, m := range matchers {
		t.matcher(m)
	}
	if reconciler["matchers"].Kind == yaml.SequenceNode && len(matchers) == 0 {
		t.lose(reconciler["matchers"].line, "there are no matchers, so that there is nothing to convert")
	}
	t.tellAll()
}

// tellAll tells what is so with every gate.
func (t *tainter) tellAll() {
	if len(t.gates) == 0 {
		return
	}
	t.tell("every node is selected, control planes too, as with Tainter, which knows no selector: narrow nodeSelector if you can")
	t.tell(fmt.Sprintf(tellUnbudgeted, t.tool))
	if slices.ContainsFunc(t.gates, func(g Gate) bool { return g.NodeGate.Spec.Reopen == v1alpha1.ReopenManual }) {
		t.tell("Tainter never takes a taint away, and reopen: Manual leaves that to a person, too; remove reopen to have the " +
			"taint go when its conditions clear. Once a person took it away, Tainter would put it back at once, nodegate " +
			"not before the conditions have cleared")
	}
	t.tell("a taint of the same key and effect with another value is put right; Tainter leaves it")
}

// matcher converts one matcher.
func (t *tainter) matcher(n *yaml.Node) {
	n = resolve(n)
	m, ok := t.mapping(n, "the matcher", "taint", "conditions")
	if !ok {
		return
	}
	taint, ok := t.taint(m, n.Line)
	if !m.has("conditions") {
		t.lose(n.Line, `the matcher has no "conditions", and Tainter needs it`)
		return
	}
	conditions := t.items(m["conditions"], "conditions")
	if m["conditions"].Kind == yaml.SequenceNode && len(conditions) == 0 {
		t.lose(m["conditions"].line, "without conditions, Tainter taints every node of the cluster; nodegate does not: name a condition")
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
		t.lose(m["conditions"].line, "its conditions match every node of the cluster; nodegate does not taint for that: "+
			"name a condition that only some nodes have")
		return
	}
	t.gate(n.Line, taint, read)
}

// taint reads a matcher's taint.
func (t *tainter) taint(m fields, line int) (v1alpha1.Taint, bool) {
	if !m.has("taint") {
		t.lose(line, `the matcher has no "taint", and Tainter needs it`)
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
		t.lose(f["effect"].line, "the effect is %q, and not NoSchedule, PreferNoSchedule or NoExecute", effect)
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
}

func (r *tainterCondition) matchesAll() bool { return r.kind.matchesAll() && r.status.matchesAll() }

// healthy are the conditions of a node of which nothing is wrong.
var healthy = []corev1.NodeCondition{
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
	{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse},
}

// matchesHealthy tells whether a healthy node has the condition.
func (r *tainterCondition) matchesHealthy() bool {
	return slices.ContainsFunc(healthy, func(c corev1.NodeCondition) bool {
		return r.kind.matches(string(c.Type)) && r.status.matches(string(c.Status))
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
		if t.anchor {
			r.exact[i], r.expr[i] = patterns[i].whole()
		}
	}
	r.kind, r.status = patterns[0], patterns[1]
	return r, ok
}

// pattern reads a regular expression, which may be empty.
func (t *tainter) pattern(f fields, key string, line int) *pattern {
	if !f.has(key) {
		t.lose(line, "the condition has no %q, and Tainter needs it", key)
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
		t.lose(f[key].line, "the %s %q means nothing here: %s", key, text, err)
		return nil
	}
	t.patterns[text] = p
	return p
}

// gate adds the gate of one matcher.
func (t *tainter) gate(line int, taint v1alpha1.Taint, conditions []tainterCondition) {
	spec := v1alpha1.NodeGateSpec{Taint: taint, Reopen: v1alpha1.ReopenManual, Budget: unbudgeted()}
	if taint.Key == v1alpha1.TaintOutOfService {
		spec.Reopen = "" // its guards lift it
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
		t.note(g, line, "it shares its taint with the matcher of line %d: the taint is on while one of them matches, and when "+
			"both do, which Tainter's write does not survive", before)
	} else {
		t.shared[at] = line
	}
	for i := range conditions {
		t.noteCondition(g, &conditions[i])
	}
	if !slices.ContainsFunc(conditions, func(c tainterCondition) bool { return !c.matchesHealthy() }) {
		t.note(g, line, "a node of which nothing is wrong matches (it has Ready=True and the pressures False): the gate closes on every such node")
	}
}

// noteCondition tells where a condition matches more, or something else, than it
// seems to say.
func (t *tainter) noteCondition(g *Gate, c *tainterCondition) {
	for i, p := range []*pattern{c.kind, c.status} {
		key := [2]string{"type", "status"}[i]
		if p.ascii != "" {
			t.note(g, c.line, "the %s %q: %s is about ASCII here, about all of Unicode in Tainter", key, p.text, p.ascii)
		}
	}
	if !c.kind.loose() && !c.status.loose() {
		return
	}
	said := fmt.Sprintf("%s=%s", c.kind.text, c.status.text)
	if t.anchor {
		t.note(g, c.line, "%q matches whole types and statuses now, as --anchor asks; Tainter finds it anywhere%s", said, also(c.kind))
		return
	}
	t.note(g, c.line, "%q is found anywhere in a type and a status%s, and the gate keeps that; --anchor has it match them as a whole", said, also(c.kind))
}

// known are types that nodes often have, or that are easily hit by mistake.
var known = []string{
	"Ready", "NotReady", "PodsReady", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock",
	"ReadonlyFilesystem", "FrequentKubeletRestart", "FrequentContainerdRestart", "FrequentUnregisterNetDevice",
}

// also names types that the pattern hits without saying so.
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
	return ", in " + list(hits) + " too"
}
