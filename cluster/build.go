// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/nodegate/nodegate/cluster/components"
)

// Build builds the programs that a cluster with these options needs and that
// are neither installed nor built already, and returns the path of each. Start
// does the same, so nobody has to call Build; it is there to have the minutes
// of the first build at a time of one's own choosing.
func Build(ctx context.Context, opts Options) (map[Component]string, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	wanted := components.Options{KubernetesVersion: opts.KubernetesVersion, Progress: opts.Progress}
	for _, component := range Components() {
		if opts.runs(component) {
			wanted.Components = append(wanted.Components, component)
		}
	}
	return components.Build(ctx, wanted)
}
