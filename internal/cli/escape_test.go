// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// hidden are characters that are not visible: they change the direction or the
// appearance of adjacent text, or control a terminal.
const hidden = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\u2028\u2029\u00ad\ufeff\u0085\u009b\u007f\x1b\x07\U000e0041"

// unmarshal contains a parser for each format.
var unmarshal = map[string]func([]byte, any) error{
	"json": json.Unmarshal,
	"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
}

// firstHidden returns the first character of a text that is not visible, except line
// breaks.
func firstHidden(text string) (r rune, is bool) {
	at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) })
	if at < 0 {
		return 0, false
	}
	return []rune(text[at:])[0], true
}

// Every verb with the formats json and yaml escapes hidden characters in them. The
// output of each contains the gate's name, which here contains all hidden characters, or that
// of the DaemonSet, which is the same.
func TestStructuredOutputIsVisible(t *testing.T) {
	const name = "agent" + hidden
	quoted := strconv.QuoteToASCII(name) // YAML has these escapes, too
	objects := map[string]string{}
	for path, text := range smallCluster() {
		for _, prefix := range []string{"gate.nodegate.dev/", "override.nodegate.dev/"} {
			text = strings.ReplaceAll(text, prefix+"agent:", strconv.QuoteToASCII(prefix+name)+":")
		}
		objects[strings.ReplaceAll(path, "/agent", "/"+name)] = strings.ReplaceAll(text, "name: agent", "name: "+quoted)
	}
	objects["/apis/apps/v1/daemonsets"] = list("apps/v1", "DaemonSetList", "metadata: {namespace: kube-system, name: "+quoted+"}")
	seen := 0
	for _, v := range verbs() {
		if v.Flags().Lookup("output") == nil {
			continue // these print text only
		}
		seen++
		for _, format := range []string{"json", "yaml"} {
			t.Run(v.Name()+" -o "+format, func(t *testing.T) {
				args := verb(t, v.Name())
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "--gate=agent", "--gate="+name)
				}
				if v.Name() == "preview" { // it rejects files with such a name
					args = []string{"preview", name, "--delete"}
				}
				code, out, stderr := newAPIServer(t, objects).run(t, append(args, "-o", format)...)
				if r, is := firstHidden(out); is || code == exitError {
					t.Fatalf("exit status %d, output contains %U:\n%q\n%q", code, r, out, stderr)
				}
				if r, is := firstHidden(stderr); is {
					t.Errorf("the warnings contain %U: %q", r, stderr)
				}
				var value any
				if err := unmarshal[format]([]byte(out), &value); err != nil {
					t.Fatalf("parsing the output: %v\n%s", err, out)
				}
				if !strings.Contains(fmt.Sprint(value), name) {
					t.Errorf("the gate's name is missing:\n%s", out)
				}
			})
		}
	}
	if seen < 10 {
		t.Errorf("only %d verbs have -o", seen)
	}
}

// A text from the API server with several lines does not look like lines of the output.
func TestTextsOfTheAPIServerAreOneLine(t *testing.T) {
	const forged = "node n1: no gate holds it."
	lease := fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: nodegate}, spec: {holderIdentity: \"a\\n%s\", leaseDurationSeconds: 15, renewTime: %s}}",
		forged, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	for name, c := range map[string]struct{ args, refuse string }{
		"why: daemonsets":       {"why n1", daemonsPath},
		"why: nodes of a group": {"why n1", nodesPath},
		"status: nodes":         {"status", nodesPath},
		"status: the Lease":     {"status", leasePath},
		"status: the holder":    {"status", ""},
		"open: the Lease":       {"open n1 --gate agent --for 1h --reason ticket --dry-run=client", leasePath},
		"tolerate":              {"tolerate --all", daemonsPath + "/daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[leasePath] = lease
			if strings.Contains(name, "group") {
				objects[nodesPath+"/n1"] = strings.Replace(heldNode, "  uid:", "  labels: {group: g}\n  uid:", 1)
				objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", agentGate+"  openTogether: {labelKey: group, atLeast: 2}\n")
			}
			server := newAPIServer(t, objects)
			server.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != c.refuse {
					return false
				}
				refusal(w, http.StatusConflict, "Conflict", "denied:\n"+forged)
				return true
			}
			_, out, err := server.run(t, strings.Fields(c.args)...)
			found := 0
			for line := range strings.Lines(out + err) {
				if strings.HasPrefix(line, forged) {
					t.Errorf("a line is forged:\n%s%s", out, err)
				}
				if strings.Contains(line, forged) {
					found++
				}
			}
			if found == 0 {
				t.Errorf("the text is missing:\n%s%s", out, err)
			}
		})
	}
}
