// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strconv"
	"strings"
	"unicode"
)

// maxLabel is the length of a DNS label.
const maxLabel = 63

// label converts any text to a DNS label in lower case, with hyphens between words.
func label(text string) string {
	var b strings.Builder
	lower, gap := false, false
	for _, r := range text {
		isUpper := r >= 'A' && r <= 'Z'
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', isUpper:
			if b.Len() > 0 && (gap || isUpper && lower) {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
			lower, gap = !isUpper, false
		default:
			gap = true
		}
	}
	return clip(b.String(), maxLabel)
}

// clip truncates a label.
func clip(name string, length int) string {
	if len(name) > length {
		name = strings.TrimRight(name[:length], "-")
	}
	return name
}

// names contains the labels in use, each with the last number that was appended to it.
type names map[string]int

// unique returns the first unused label for the text, with a number appended if needed.
func (n names) unique(text string) string {
	base := label(text)
	if base == "" {
		base = "unnamed"
	}
	if _, taken := n[base]; !taken {
		n[base] = 1
		return base
	}
	for {
		n[base]++
		suffix := "-" + strconv.Itoa(n[base])
		name := clip(base, maxLabel-len(suffix)) + suffix
		if _, taken := n[name]; !taken {
			n[name] = 1
			return name
		}
	}
}

// ofTaint returns the name of a gate for its taint.
func ofTaint(key, value string) string {
	_, name, found := strings.Cut(key, "/")
	if !found {
		name = key
	}
	return name + " " + value
}
