// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// If a gate is selected, states, times and the order are those of this gate, whatever holds the
// nodes apart from it. A row is the name of its node, its time, and the parts of its bar.
func TestRowsOfAGate(t *testing.T) {
	for _, c := range []struct {
		gate, state string
		want        []string
	}{
		{"", "", []string{
			"since-creation: held 3d 0h, since its creation, startup closed", "both-again: held 3h 00m, closed again, closed",
			"adopted: held, for at least 1h 00m", "older: held 20m 00s, closed again, closed", "opened-before: held 10m 00s, closed again, closed",
			"garbled: held, time unknown", "soft: –, no gate is known to have held the node at its creation",
		}},
		{"a", "", []string{
			"since-creation: held 3d 0h, since its creation, startup closed", "both-again: held 3h 00m, closed again, closed",
			"opened-before: 2m 00s, to open, startup waiting", "adopted: 1m 00s, to open, startup waiting",
			"older: –, 1h 00m, the node is older than the gate",
		}},
		{"b", "held", []string{
			"adopted: held, for at least 1h 00m", "older: held 20m 00s, closed again, closed", "opened-before: held 10m 00s, closed again, closed",
			"both-again: held 5m 00s, closed again, closed", "since-creation: held 1m 00s, closed again, closed", "garbled: held, time unknown",
		}},
		{"soft", "", []string{"soft: –, closed, PreferNoSchedule"}},
		{"soft", "open", []string{"soft: –, closed, PreferNoSchedule"}},
		{"soft", "held", nil},
		{"soft", "overdue", nil},
	} {
		t.Run(c.gate+"/"+c.state, func(t *testing.T) {
			b := open(t, "mixed", screensOf[0], true)
			got := ask[[]string](b, fmt.Sprintf(rowsOf, c.gate, c.state))
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n %s, want\n %s", strings.Join(got, "\n "), strings.Join(c.want, "\n "))
			}
			b.screenshot("mixed-"+c.gate+c.state, true)
			b.clean()
		})
	}
}

// rowsOf selects a gate and a state, and returns the rows. It waits until the page has drawn
// them, which replaces all rows.
const rowsOf = `(async (gate, state) => {
	const select = (id, text) => { const s = document.getElementById(id); s.selectedIndex = [...s.options].findIndex((o) => o.text === (text || 'any')) };
	const drawn = new Promise((done) => new MutationObserver(done).observe(document.getElementById('found'), { childList: true }));
	select('gate', gate);
	select('state', state);
	document.getElementById('filter').dispatchEvent(new Event('input'));
	await drawn;
	return [...document.querySelectorAll('#rows > li')].map((row) => {
		const took = row.querySelector('.took'), small = took.querySelector('small');
		const bars = [...row.querySelectorAll('.track i:not(.cut)')].map((i) => i.className).join(' ');
		return row.querySelector('.name').textContent + ': ' + [took.firstChild.textContent, small.textContent, bars].filter(Boolean).join(', ');
	});
})('%s', '%s')`

// The details of a node show the signals that its gate waits for. If the gate's state does not
// depend on them, it waits for none. An event may have happened before, so it is not "not yet".
func TestLanesOfANode(t *testing.T) {
	b := open(t, "blocked", screensOf[0], true)
	got := ask[[]string](b, lanesOf)
	want := []string{
		"paused: node ready 40s, startup; a not at present; b not at present",
		"waits: node ready 40s, startup; a waiting, closed; b waiting, closed",
		"unready: node ready not at present; a 1m 00s, waiting; b held at the opening, not now",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n %s, want\n %s", strings.Join(got, "\n "), strings.Join(want, "\n "))
	}
	b.screenshot("blocked", true)
	b.clean()
}

// lanesOf opens all rows, and returns for each the name of its node and its lanes: their labels,
// values, and the parts of their bars.
const lanesOf = `(async () => {
	const rows = [...document.querySelectorAll('#rows > li')];
	const all = Promise.all(rows.map((row) => new Promise((open) => row.firstChild.addEventListener('toggle', open))));
	rows.forEach((row) => { row.firstChild.open = true });
	await all;
	return rows.map((row) => row.querySelector('.name').textContent + ': ' + [...row.querySelectorAll('.lane')].map((lane) => {
		const bars = [...lane.querySelectorAll('.track i:not(.mark)')].map((i) => i.className).join(' ');
		return [lane.querySelector('.label').textContent + ' ' + lane.querySelector('.value').textContent, bars].filter(Boolean).join(', ');
	}).join('; '));
})()`
