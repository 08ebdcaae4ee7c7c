// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/internal/gate"
)

// Count returns a number followed by a noun, which gets the plural s if needed.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsAre returns "is" or "are" for a number of objects.
func IsAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// YesNo returns "yes" or "no".
func YesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// Enumerate joins words with commas, and the last one with the conjunction.
func Enumerate(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Some joins the first names of a list, at most limit, followed by the number of the others.
func Some(names []string, limit int) string {
	return gate.FirstNames(names[:min(len(names), limit)], len(names))
}

// Time formats a time as in the Kubernetes API.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Elapsed returns the prefix followed by the time since a moment, or "" if the moment is
// unknown.
func Elapsed(prefix string, since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return prefix + duration.HumanDuration(max(now.Sub(since), 0))
}
