// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/intern"
)

// deviceCounter counts devices for one query. It counts them when a slice arrives, so that
// they are not stored.
type deviceCounter struct {
	query gate.DeviceQuery
	texts *intern.Texts
	// selectors is nil if err is set, which is then the result for every device.
	selectors []*expression.DeviceExpression
	err       error
}

func newDeviceCounter(query gate.DeviceQuery, texts *intern.Texts) *deviceCounter {
	c := &deviceCounter{query: query, texts: texts}
	for _, text := range query.Expressions() {
		selector, err := expression.CompileDevice(text)
		if err != nil {
			c.err = err
			break
		}
		c.selectors = append(c.selectors, selector)
	}
	return c
}

// count counts devices of a driver. Texts share memory with equal ones of other slices:
// most nodes of a kind have the same devices.
func (c *deviceCounter) count(driver string, devices []*resourcev1.Device) (sum gate.Devices) {
	if !c.query.Counts() {
		return sum
	}
	var names, failed strings.Builder
	for _, d := range devices {
		selected, err := c.selects(driver, d)
		taint := strongTaint(d)
		switch {
		case taint != nil && (err != nil || !selected):
		case err != nil:
			sum.Failed++
			appendName(&failed, d.Name)
			if sum.Error == "" {
				sum.Error = c.texts.Text("device " + d.Name + ": " + err.Error())
			}
		case taint != nil:
			sum.Tainted++
			if sum.Taint == "" {
				sum.Taint = c.texts.Text(taintText(taint) + " on device " + d.Name)
			}
		case selected:
			sum.Usable++
			appendName(&names, d.Name)
		}
	}
	sum.Names, sum.FailedNames = c.texts.Text(names.String()), c.texts.Text(failed.String())
	return sum
}

// appendName appends a name to a list whose names are separated by commas.
func appendName(list *strings.Builder, name string) {
	if list.Len() > 0 {
		list.WriteByte(',')
	}
	list.WriteString(name)
}

// selects reports whether all selectors select a device.
func (c *deviceCounter) selects(driver string, d *resourcev1.Device) (bool, error) {
	if c.err != nil {
		return false, c.err
	}
	for _, selector := range c.selectors {
		if matches, err := selector.Matches(driver, d); err != nil || !matches {
			return false, err
		}
	}
	return true, nil
}

// strongTaint returns the first taint of a device that keeps pods off, or nil.
func strongTaint(d *resourcev1.Device) *resourcev1.DeviceTaint {
	for i := range d.Taints {
		if keepsOff(d.Taints[i].Effect) {
			return &d.Taints[i]
		}
	}
	return nil
}

// keepsOff reports whether an effect keeps pods off a device. Kubernetes requires that
// unknown effects are treated like None.
func keepsOff(effect resourcev1.DeviceTaintEffect) bool {
	return effect == resourcev1.DeviceTaintEffectNoSchedule || effect == resourcev1.DeviceTaintEffectNoExecute
}

// taintText returns a taint in the form in which kubectl shows taints of nodes.
func taintText(t *resourcev1.DeviceTaint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}
