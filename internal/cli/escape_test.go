// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

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
