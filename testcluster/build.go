// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"

	"github.com/nodegate/nodegate/testcluster/components"
)

// Build builds the programs that a cluster with these options needs and that are
// neither installed nor built already, and returns the path of each. Start does
// the same. Call Build to choose when the first build happens, which takes
// minutes.
func Build(ctx context.Context, opts Options) (map[Component]string, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	wanted := components.Options{KubernetesVersion: opts.KubernetesVersion, Progress: opts.Progress}
	for _, component := range known() {
		if opts.runs(component) {
			wanted.Components = append(wanted.Components, component)
		}
	}
	return components.Build(ctx, wanted)
}
