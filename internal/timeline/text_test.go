// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gateset"
)

// testdata contains the expected output of each case, for terminals, for pipes and as
// JSON.
func TestText(t *testing.T) {
	for _, c := range clitest.Lives {
		t.Run(c.Name, func(t *testing.T) {
			facts, pods := c.Facts()
			answer := &Timeline{Time: clitest.Now}
			if pods == nil {
				answer.Unread = []string{"listing the pods of node n1: pods is forbidden"}
			}
			gates := gateset.Reported(c.Gates(t))
			d := gates.Decide(&facts, clitest.Now)
			answer.History = Trace(gates.Gates, &facts, &d, pods, clitest.Now)
			raw, err := json.MarshalIndent(answer, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.Name+".json", string(raw)+"\n")
			for kind, layout := range map[string]Layout{"terminal": {Unicode: true, Width: 110}, "pipe": {Width: 100}} {
				text := answer.Text(layout)
				clitest.Golden(t, c.Name+"."+kind+".txt", text)
				for line := range strings.Lines(text) {
					if bars := strings.ContainsAny(line, "*●=━"); bars && len([]rune(line)) > layout.Width {
						t.Errorf("the line is wider than %d columns: %s", layout.Width, line)
					}
				}
				if strings.ContainsAny(answer.Text(layout), "─━╌●✓✗") && kind == "pipe" {
					t.Error("the output for a pipe is not ASCII")
				}
			}
		})
	}
}

// Times have a resolution of a second, so a short axis has no finer ticks.
func TestShortAxis(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for seconds, want := range map[int]string{1: "0s 1s", 2: "0s 1s 2s", 3: "0s 3s", 8: "0s 2s 4s 6s 8s"} {
		c := chart{strokes: asciiStrokes, width: 100, zero: begin, end: begin.Add(time.Duration(seconds) * time.Second)}
		if got := strings.Join(strings.Fields(c.axis()), " "); got != want {
			t.Errorf("the axis of %d s is %q, want %q", seconds, got, want)
		}
	}
}
