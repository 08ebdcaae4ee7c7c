// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// scan parses a record in the form in which nodegate and the API server write it: plain
// JSON without spaces or escapes. Every decision reads the records of all of the node's
// gates, and encoding/json would take longer than the rest of the decision. scan
// returns false for any other form, which may still be valid.
func (r *Record) scan(raw string) bool {
	rest, ok := strings.CutPrefix(raw, "{")
	for ok {
		var key string
		if key, rest, ok = cutText(rest); !ok {
			break
		}
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			break
		}
		if rest, ok = r.scanField(key, rest); !ok {
			break
		}
		if rest == "}" {
			return true
		}
		rest, ok = strings.CutPrefix(rest, ",")
	}
	return false
}

// scanField parses the value of one field and returns the text after it.
func (r *Record) scanField(key, text string) (rest string, ok bool) {
	switch key {
	case "fought":
		r.Fought, rest, ok = cutCount(text)
		return rest, ok
	case "silentSeconds":
		n, rest, ok := cutCount(text)
		r.SilentSeconds = int64(n)
		return rest, ok
	case "overdue":
		rest, r.Overdue = strings.CutPrefix(text, "true")
		return rest, r.Overdue // false is never written
	case "reclosed":
		rest, r.Reclosed = strings.CutPrefix(text, "true")
		return rest, r.Reclosed
	}
	value, rest, ok := cutText(text)
	if !ok {
		return "", false
	}
	switch key {
	case "state":
		r.State = value
	case "since":
		ok = scanTime(value, &r.Since)
	case "reason":
		r.Reason = v1alpha1.Reason(value)
	case "boot":
		r.Boot = value
	case "taint":
		r.Taint = value
	case "source":
		r.Source = value
	case "digest":
		r.Digest = Digest(value)
	case "silentSince":
		ok = scanTime(value, &r.SilentSince)
	case "foughtAt":
		ok = scanTime(value, &r.FoughtAt)
	default:
		ok = r.scanRare(key, value)
	}
	return rest, ok
}

// scanRare parses a text field that few records have.
func (r *Record) scanRare(key, value string) bool {
	switch key {
	case "override":
		r.Override = value
		return true
	case "overrideSince":
		return scanTime(value, &r.OverrideSince)
	case "bootSeen":
		return scanTime(value, &r.BootSeen)
	case "completed":
		r.Completed = Completions(value)
		return true
	}
	return false
}

// cutText cuts a quoted string of plain ASCII off the beginning of the text.
func cutText(text string) (value, rest string, ok bool) {
	if text == "" || text[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i], text[i+1:], true
		case c < ' ', c > '~', c == '\\':
			return "", "", false
		}
	}
	return "", "", false
}

// cutCount cuts a positive number off the beginning of the text.
func cutCount(text string) (n int, rest string, ok bool) {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end == 0 || end > 9 || text[0] == '0' {
		return 0, "", false
	}
	n, err := strconv.Atoi(text[:end])
	return n, text[end:], err == nil
}

func scanTime(text string, into *time.Time) bool { return into.UnmarshalText([]byte(text)) == nil }
