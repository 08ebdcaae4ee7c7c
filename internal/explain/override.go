// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"maps"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// explainOverride returns the override of a gate, or nil. The decision does not know the end of an
// override of a gate from a file.
func (f *Facts) explainOverride(v *gate.Verdict) *Override {
	o := v.Overridden
	if o == nil || o.State == "" {
		return nil
	}
	e := &Override{
		State: o.State, Until: o.Until.UTC(), Reason: o.Because,
		Own: cmp.Or(o.Own, StateNone), OwnReason: o.OwnReason, HeldBy: o.HeldBy,
	}
	if written, err := gate.ParseOverride(f.Node.Node.Overrides[v.Gate]); err == nil && f.isFromFile(v.Gate) && written.State == o.State {
		e.Until, e.Reason = written.Until.UTC(), written.Reason
	}
	return e
}

// ignoredOverrides returns the overrides that have no effect, with the cause: those that stay, and
// those that the controller is about to remove before their end. Whether the override of a gate from
// a file has an effect is unknown.
func (f *Facts) ignoredOverrides() map[string]string {
	all := make(map[string]string)
	maps.Copy(all, f.Decision.Ignored)
	maps.Copy(all, f.Decision.Withdrawn)
	maps.DeleteFunc(all, func(name, why string) bool {
		return why == "" || // it has ended
			why == gate.IgnoredNoGate && f.isFromFile(name)
	})
	if len(all) == 0 {
		return nil
	}
	return all
}

// isFromFile reports whether only a record on the node is known of a gate, because it is declared in
// a file of the controller.
func (f *Facts) isFromFile(name string) bool {
	g, _ := f.Gates.Gate(name)
	r, err := gate.ParseRecord(f.Node.Node.Records[name])
	return g == nil && err == nil && r.Source == v1alpha1.SourceFiles
}
