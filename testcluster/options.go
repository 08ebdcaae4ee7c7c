// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"io"
	"slices"

	"github.com/nodegate/nodegate/testcluster/components"
)

// Component names one program of the control plane.
type Component = components.Component

// The components of a cluster, in the order in which they start.
const (
	Etcd              = components.Etcd
	APIServer         = components.APIServer
	Scheduler         = components.Scheduler
	ControllerManager = components.ControllerManager
	Controllers       = components.Controllers
	KWOK              = components.KWOK
)

// Components returns the components of a complete cluster in the order in which they
// start.
func Components() []Component {
	return []Component{Etcd, APIServer, Scheduler, ControllerManager, KWOK}
}

// known returns all components in the order in which they start.
func known() []Component { return append([]Component{Etcd, APIServer}, clients...) }

// clients are the components that are clients of the API server.
var clients = []Component{Scheduler, ControllerManager, Controllers, KWOK}

// Versions returns the supported minor versions of Kubernetes, newest first.
func Versions() []string { return components.Versions() }

// VersionVariable is the environment variable that sets DefaultVersion.
const VersionVariable = components.VersionVariable

// DefaultVersion returns the minor version of Kubernetes for Options without a
// version: the one in VersionVariable, or the newest.
func DefaultVersion() string { return components.DefaultVersion() }

// Options specifies the cluster to start. The zero value is a complete cluster of
// DefaultVersion in a temporary directory.
type Options struct {
	// Dir holds the cluster's state, logs and credentials. A cluster that is
	// started again in the same directory has the same objects and the same
	// certificate authority. Empty means a temporary directory, which Stop
	// removes unless the cluster failed.
	Dir string

	// KubernetesVersion is a minor version such as "1.37": one of Versions,
	// empty for DefaultVersion. Programs of that version that are installed are used.
	KubernetesVersion string

	// APIServerPort is the port of the API server on 127.0.0.1; 0 means a
	// free port.
	APIServerPort int

	// Components lists the components to run; nil means a complete cluster. Etcd and
	// APIServer always run, so Components: []Component{APIServer} is the smallest and
	// fastest cluster. Controllers can run instead of ControllerManager. Without both, no
	// namespace gets its default ServiceAccount, so pods must specify an existing one.
	Components []Component

	// ExtraArgs are appended to a component's own command line, and take
	// precedence over it: {APIServer: {"--feature-gates=X=true"}}.
	ExtraArgs map[Component][]string

	// Stages are KWOK stages as YAML documents. For each kind of object that they
	// apply to, they replace the default stages (config/stages.yaml).
	Stages string

	// Audit makes the API server write an audit log, before it answers each
	// request (see Cluster.AuditLog).
	Audit bool

	// AuditPolicy is an audit policy as YAML. Empty means: Metadata of every
	// request, and also the bodies of request and response for nodes and pod
	// bindings. It is used only when Audit is on.
	AuditPolicy string

	// Progress receives messages about what is being built and started; nil
	// discards them. On a terminal, it shows one line that is updated in place.
	Progress io.Writer
}

// runs reports whether the component is part of the cluster.
func (o *Options) runs(component Component) bool {
	return component == Etcd || component == APIServer ||
		o.Components == nil && slices.Contains(Components(), component) || slices.Contains(o.Components, component)
}

func (o *Options) validate() error {
	for _, component := range o.Components {
		if !slices.Contains(known(), component) {
			return fmt.Errorf("unknown component %q: must be one of %v", component, known())
		}
	}
	for component := range o.ExtraArgs {
		if !slices.Contains(known(), component) {
			return fmt.Errorf("extra arguments for unknown component %q: must be one of %v", component, known())
		}
	}
	if o.APIServerPort < 0 || o.APIServerPort > 65535 {
		return fmt.Errorf("API server port %d is not between 0 and 65535", o.APIServerPort)
	}
	_, err := mergeStages(o.Stages)
	return err
}
