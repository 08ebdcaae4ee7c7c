// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/internal/gate"
)

// ruleFeed observes DeviceTaintRules while a gate counts devices.
type ruleFeed struct {
	*running
	rules *DeviceTaintRules
}

// adjustDeviceTaintRules starts and stops the feed of DeviceTaintRules.
func (f *Feed) adjustDeviceTaintRules(ctx context.Context, needed bool) {
	before := f.ruleFeed.Load()
	switch {
	case needed && before == nil:
		feed := &ruleFeed{running: f.newRunning(rulesName), rules: NewDeviceTaintRules(f.ruleChanged)}
		f.ruleFeed.Store(feed)
		start[runtime.Object](ctx, f, feed.running, f.sources.deviceTaintRules, &unstructured.Unstructured{}, feed.rules, ConvertDeviceTaintRule)
	case !needed && before != nil:
		f.ruleFeed.Store(nil)
		before.Stop()
	}
}

// ruleChanged announces the nodes whose devices a rule selects.
func (f *Feed) ruleChanged(r *gate.DeviceTaintRule) {
	for source, feed := range *f.sliceFeeds.Load() {
		switch {
		case r.Driver != "" && r.Driver != source.Driver:
		case feed.shared != nil:
			feed.shared.ruleChanged(source.Driver, r)
		default:
			feed.local.ruleChanged(source.Driver, r)
		}
	}
}

// deviceTaintRules returns all rules, or nil if they have not been observed.
func (f *Feed) deviceTaintRules() *gate.DeviceTaintRules {
	feed := f.ruleFeed.Load()
	if feed == nil || !feed.IsLive() {
		return nil
	}
	return feed.rules.All()
}
