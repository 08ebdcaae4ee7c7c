// SPDX-License-Identifier: Apache-2.0

// Command dashboard writes the Grafana dashboard of nodegate's metrics to its
// standard output. The panels are defined in panels.go.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(dashboard()); err != nil {
		fmt.Fprintln(os.Stderr, "writing dashboard:", err)
		os.Exit(1)
	}
}

// object is one of Grafana's JSON objects.
type object = map[string]any

// schema is the schema version of Grafana 12, which newer versions support too.
const schema = 41

// In Grafana's units, columns is the width of a dashboard. A line of panels has the
// height of its first panel, which is low if that panel shows a number.
const (
	columns = 24
	high    = 8
	low     = 5
)

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

func dashboard() object {
	var all []object
	y := 0
	for _, r := range rows {
		all = append(all, object{"id": len(all) + 1, "type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": at(0, y, columns, 1)})
		y++
		x, height := 0, high
		for _, p := range r.panels {
			if x+p.width > columns {
				x, y = 0, y+height
			}
			if x == 0 {
				height = high
			}
			if x == 0 && p.kind == stat {
				height = low
			}
			all = append(all, p.object(len(all)+1, at(x, y, p.width, height)))
			x += p.width
		}
		y += height
	}
	return object{
		"uid": "nodegate", "title": "nodegate", "tags": []string{"nodegate", "kubernetes"},
		"description":   "Gates, and the nodes that they hold. Written by hack/dashboard in nodegate's sources.",
		"schemaVersion": schema, "editable": true, "graphTooltip": 1, "refresh": "30s",
		"time":       object{"from": "now-6h", "to": "now"},
		"templating": object{"list": variables()},
		"panels":     all,
	}
}

func at(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func variables() []object {
	return []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		{
			"name": "gate", "label": "Gate", "type": "query", "datasource": datasource, "refresh": 2, "sort": 1,
			"query": "label_values(nodegate_gate_nodes, gate)", "definition": "label_values(nodegate_gate_nodes, gate)",
			"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		},
		{
			"name": "window", "label": "Over", "type": "custom", "query": "5m,30m,1h,6h,1d", "current": object{"text": "1h", "value": "1h"},
			"options": []object{
				{"text": "5m", "value": "5m"}, {"text": "30m", "value": "30m"}, {"text": "1h", "value": "1h", "selected": true},
				{"text": "6h", "value": "6h"}, {"text": "1d", "value": "1d"},
			},
		},
	}
}

// A row of panels has a title.
type row struct {
	title  string
	panels []panel
}

// panel is one panel of the dashboard.
type panel struct {
	title, description string
	// kind is Grafana's type of panel.
	kind  string
	width int
	unit  string
	// bad is the value from which the panel is red. Zero means never.
	bad     float64
	queries []query
}

// query is a panel's query, and the legend of its result.
type query struct{ expr, legend string }

func (p *panel) object(id int, position object) object {
	var targets []object
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "datasource": datasource, "expr": q.expr, "legendFormat": q.legend}
		if p.kind != timeseries {
			target["instant"] = true
		} else {
			target["range"] = true
		}
		if p.kind == table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.bad > 0 {
		steps = append(steps, object{"color": "red", "value": p.bad})
	}
	defaults := object{"unit": p.unit, "min": 0, "thresholds": object{"mode": "absolute", "steps": steps}}
	if p.kind == timeseries {
		defaults["color"] = object{"mode": "palette-classic"}
	}
	return object{
		"id": id, "type": p.kind, "title": p.title, "description": p.description, "gridPos": position,
		"datasource": datasource, "targets": targets, "options": options[p.kind],
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}},
	}
}
