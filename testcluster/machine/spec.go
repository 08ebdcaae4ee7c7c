// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"net/url"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// Directories in Options.Dir.
const (
	diskDir = "disk" // the machine's /var
	etcDir  = "etc"  // the machine's /etc
	rootDir = "root" // where the root file system is mounted
	logDir  = "logs"
	linkDir = "link"           // the machine's /link, with apiSocket
	nriDir  = diskDir + "/nri" // the machine's runtimePlugins

	apiSocket = "api.sock"
)

// Paths on the machine.
const (
	// searchPath is the variable PATH.
	searchPath = "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	programDir = "/opt/bin"
	// pluginDir is where Debian installs the plugins of the Container Network Interface.
	pluginDir = "/usr/lib/cni"
	// runtimePlugins is the directory with containerd's plugins. It is on the disk.
	runtimePlugins = "/opt/nri"
)

// Commands to PID 1, a line each, on its standard input.
const (
	commandKill = "kill kubelet"
	// commandPrepare announces a shutdown, and commandCancel that it has been cancelled.
	// commandFinish waits for what delays it, and ends PID 1.
	commandPrepare = "prepare shutdown"
	commandCancel  = "cancel shutdown"
	commandFinish  = "finish shutdown"
)

// specVariable is the environment variable with PID 1's spec as JSON.
const specVariable = "NODEGATE_MACHINE"

// spec is what PID 1 needs to know.
type spec struct {
	Name, Dir, BootID string
	// Address is the node's address, APIServer the address and port of the API server, and
	// Service those at which pods expect it.
	Address, APIServer, Service string
	// Programs are paths of programs by name.
	Programs map[components.Component]string
	// Images are the paths of the image archives.
	Images []string
	// Labels are the labels of the Node.
	Labels map[string]string
}

func (m *Machine) spec() spec {
	o := &m.options
	server, _ := url.Parse(o.Cluster.Admin().Host) // see prepare
	return spec{
		Name: o.Name, Dir: o.Dir, BootID: m.bootID, Address: o.address(), APIServer: server.Host, Service: testcluster.ServiceAddress,
		Programs: o.Programs, Images: append([]string{o.Image}, o.Images...), Labels: o.Labels,
	}
}
