// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestFirstNames(t *testing.T) {
	for length, want := range map[int]string{2: "a, b", 5: "a, b and 3 more"} {
		if got := FirstNames([]string{"a", "b"}, length); got != want {
			t.Errorf("of %d: %q, want %q", length, got, want)
		}
	}
}

// What could not be read is unknown. Other readings have their usual message. Invisible characters
// of a subject are escaped.
func TestSnapshotMessage(t *testing.T) {
	for want, r := range map[string]Reading{
		`pods in a\u202e is unknown`:  {Reason: v1alpha1.ReadingNotObserved, Subject: "pods in a\u202e"},
		"a/b has no pod on this node": {Reason: v1alpha1.ReadingPodMissing, Subject: "a/b"},
	} {
		if got := r.SnapshotMessage(); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

// A kubelet can write bytes that are not UTF-8 into its Node, in protobuf. Terminals that use
// 8-bit codes take \x9b for the beginning of a control sequence.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain \u00fc \uFFFD": "plain \u00fc \uFFFD",
		"a\nb \"c\"":          `a\nb "c"`,
		"a\x1b[2J\u009b2J":    `a\x1b[2J\u009b2J`,
		"a\x9b2J":             `a\x9b2J`,
		"\u202eb\xff":         `\u202eb\xff`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
}
