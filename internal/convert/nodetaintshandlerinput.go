// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// handlerDeployment is a Deployment of the input.
type handlerDeployment struct {
	line int
	// named reports whether its name or its ServiceAccount is nodetaintshandler's.
	named bool
	// sets reports whether it sets a variable of nodetaintshandler, or may set one by envFrom.
	sets       bool
	containers []fields
}

// deployment reads the containers of a Deployment, but not yet their environment.
func (h *handler) deployment(object, template fields) handlerDeployment {
	spec := template.within("spec")
	d := handlerDeployment{
		line:  object["kind"].line,
		named: object.within("metadata").at("name") == handlerName || spec.at("serviceAccountName") == handlerName,
	}
	if !spec.has("containers") {
		return d
	}
	for _, n := range h.items(spec["containers"], "containers") {
		if container, ok := h.mapping(n, "the container"); ok {
			d.containers = append(d.containers, container)
			d.sets = d.sets || setsVariable(container)
		}
	}
	return d
}

// setsVariable reports whether a container sets a variable of nodetaintshandler, or may set one by
// envFrom.
func setsVariable(container fields) bool {
	if container.has("envFrom") && len(container["envFrom"].Content) > 0 {
		return true
	}
	return container.has("env") && slices.ContainsFunc(container["env"].Content, func(n *yaml.Node) bool {
		return strings.HasPrefix(fieldsOf(resolve(n)).at("name"), handlerVariable)
	})
}

// readDeployment reads the environment of nodetaintshandler's Deployment. Other Deployments can be
// among the objects, as in the folder with nodetaintshandler's manifests. If no Deployment has
// its name or its ServiceAccount, the one that sets its variables is nodetaintshandler's.
func (h *handler) readDeployment() {
	byName := slices.ContainsFunc(h.deployments, func(d handlerDeployment) bool { return d.named })
	var setting []int
	for _, d := range h.deployments {
		if byName && !d.named || !byName && !d.sets {
			continue
		}
		h.recognized = true
		if d.sets {
			setting = append(setting, d.line)
		}
		if len(setting) > 1 {
			h.errorf(d.line, "the Deployments in lines %d and %d both set variables of nodetaintshandler (%s... or envFrom): "+
				"remove the one that does not run it from the input", setting[0], d.line, handlerVariable)
			return
		}
		for _, container := range d.containers {
			h.container(container)
		}
	}
}
