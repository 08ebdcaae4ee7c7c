// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/testcluster"
)

// Files in the machine's /etc.
const (
	kubeletFile    = "kubelet.yaml"
	kubeconfigFile = "kubelet.kubeconfig"
	containerdFile = "containerd.toml"
	networkFile    = "cni/net.d/10-bridge.conflist"
	busFile        = "dbus.conf"

	containerdSocket = "/run/containerd/containerd.sock"
)

// address returns the node's address.
func (o *Options) address() string { return fmt.Sprintf("10.79.%d.1", o.Number) }

// writeConfiguration writes the machine's /etc.
func (m *Machine) writeConfiguration() error {
	kubelet, err := m.options.kubeletConfiguration(m.cgroup)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		kubeletFile:    string(kubelet),
		containerdFile: strings.ReplaceAll(containerdConfiguration, "IMAGE", ImageName),
		networkFile:    strings.ReplaceAll(networkConfiguration, "NUMBER", fmt.Sprint(m.options.Number)),
		busFile:        busConfiguration,
		"passwd":       "root:x:0:0::/root:/bin/sh\n",
		"group":        "root:x:0:\n",
		"hosts":        "127.0.0.1 localhost\n",
		"hostname":     m.options.Name + "\n",
		"machine-id":   fmt.Sprintf("%032x\n", m.options.Number),
		"os-release":   "ID=test\nPRETTY_NAME=\"test machine\"\n",
	} {
		file := m.file(etcDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return testcluster.WriteKubeconfig(m.file(etcDir, kubeconfigFile), m.options.Cluster.Node(m.options.Name))
}

// kubeletConfiguration returns the kubelet's configuration. The kubelet evicts no pods,
// because the disk and the memory are the host's. When it reports what has its defaults.
func (o *Options) kubeletConfiguration(cgroup string) ([]byte, error) {
	grace, critical := "6s", "2s"
	if o.AbruptShutdown {
		grace, critical = "0s", "0s"
	}
	return yaml.Marshal(map[string]any{
		"apiVersion":                      "kubelet.config.k8s.io/v1beta1",
		"kind":                            "KubeletConfiguration",
		"authentication":                  map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":                   map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":                    "cgroupfs",
		"cgroupRoot":                      "/" + cgroup,
		"containerRuntimeEndpoint":        "unix://" + containerdSocket,
		"enforceNodeAllocatable":          []string{},
		"evictionHard":                    map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"failCgroupV1":                    false,
		"failSwapOn":                      false,
		"imageGCHighThresholdPercent":     100,
		"registerWithTaints":              o.Taints,
		"resolvConf":                      "",
		"shutdownGracePeriod":             grace,
		"shutdownGracePeriodCriticalPods": critical,
	})
}

// The OOM score cannot be lowered without the capability SYS_RESOURCE.
const containerdConfiguration = `version = 3

[grpc]
address = "` + containerdSocket + `"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "IMAGE"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["` + pluginDir + `"]
conf_dir = "/etc/cni/net.d"
`

// All processes on the machine run as root.
const busConfiguration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=` + busSocket + `</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

const networkConfiguration = `{
  "cniVersion": "1.0.0",
  "name": "bridge",
  "plugins": [{
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.80.NUMBER.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`
