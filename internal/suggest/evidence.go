// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Kind is a kind of evidence.
type Kind string

// All kinds of evidence.
const (
	KnownByPreset Kind = "Preset"
	CNI           Kind = "CNI"
	CSI           Kind = "CSI"
	// KubeletPlugin is a plugin that registers with the kubelet and is not known to be a
	// CSI driver: it may also be a DRA driver.
	KubeletPlugin Kind = "KubeletPlugin"
	DevicePlugin  Kind = "DevicePlugin"
	DNS           Kind = "DNS"
	// StartOrder means that pods started only after the daemon had become ready.
	StartOrder Kind = "StartOrder"
	// Failures means that pods failed before the daemon had become ready.
	Failures      Kind = "Failures"
	PriorityClass Kind = "PriorityClass"
)

// Evidence is a reason to believe that pods need a DaemonSet.
type Evidence struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
	// Nodes are the nodes on which starts were observed.
	Nodes []string `json:"nodes,omitempty"`
}

// certainty returns how certain evidence of this kind is.
func (e *Evidence) certainty() Certainty {
	switch e.Kind {
	case KnownByPreset:
		return Certain
	case StartOrder, Failures:
		if len(e.Nodes) < 2 {
			return Possible
		}
	case PriorityClass:
		return Possible
	}
	return Likely
}

// best returns the highest certainty of evidence.
func best(all []Evidence) Certainty {
	at := len(certainties) - 1
	for i := range all {
		at = min(at, slices.Index(certainties, all[i].certainty()))
	}
	return certainties[at]
}

// isStructural reports whether evidence comes from the DaemonSet's template and is more
// than a priority class.
func isStructural(e Evidence) bool {
	return e.Kind != StartOrder && e.Kind != Failures && e.Kind != PriorityClass
}

func newDaemon(ds *appsv1.DaemonSet, csiDrivers map[string]bool) daemon {
	d := daemon{DaemonSet: ds}
	add := func(kind Kind, format string, args ...any) {
		d.evidence = append(d.evidence, Evidence{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	pod := &ds.Spec.Template.Spec
	if at := writes(pod, "cni/net.d", "cni/bin"); at != "" {
		add(CNI, "it writes to %s on the node: it installs or configures a CNI plugin, without which pods have no network", at)
	}
	d.addRegistration(csiDrivers, add)
	if at := writes(pod, "device-plugins"); at != "" {
		d.devicePlugin = true
		add(DevicePlugin, "it writes to %s on the node: it is a device plugin, without which pods that request its devices are not scheduled to the node", at)
	}
	if port := servesDNS(pod); port != "" {
		add(DNS, "it %s: it is a DNS server of the node, without which pods may not resolve names", port)
	}
	if pod.PriorityClassName == "system-node-critical" {
		add(PriorityClass, "its priorityClassName is system-node-critical, which is for pods without which a node does not work, but is also used for others")
	}
	return d
}

// addRegistration adds evidence that the DaemonSet registers a plugin with the kubelet, and
// the CSI drivers.
func (d *daemon) addRegistration(csiDrivers map[string]bool, add func(Kind, string, ...any)) {
	pod := &d.Spec.Template.Spec
	at := writes(pod, "plugins_registry")
	registrar := ""
	for _, c := range running(pod) {
		if strings.Contains(c.Image, "csi-node-driver-registrar") || strings.Contains(c.Image, "driver-registrar") {
			registrar = c.Name
		}
		if socket := registrationPath(c); socket != "" {
			registrar = c.Name
			if name := driverIn(path.Dir(socket)); !slices.Contains(d.drivers, name) {
				d.drivers = append(d.drivers, name)
			}
		}
	}
	for _, name := range d.drivers {
		if csiDrivers[name] {
			d.verified = append(d.verified, name)
		}
	}
	switch {
	case len(d.verified) > 0:
		add(CSI, "its container %s registers the CSI driver %s, without which pods with its volumes do not start", registrar, strings.Join(d.verified, ", "))
	case registrar != "":
		add(CSI, "its container %s registers a CSI driver, without which pods with its volumes do not start", registrar)
	case at != "":
		add(KubeletPlugin, "it writes to %s on the node: it registers a CSI or DRA driver with the kubelet", at)
	}
}

// running returns the containers that run as long as the pod does: sidecars are init containers that
// the kubelet restarts.
func running(pod *corev1.PodSpec) (all []*corev1.Container) {
	for i := range pod.InitContainers {
		if c := &pod.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	for i := range pod.Containers {
		all = append(all, &pod.Containers[i])
	}
	return all
}

// registrationFlag is the flag of csi-node-driver-registrar with the path of the driver's
// socket.
const registrationFlag = "--kubelet-registration-path"

// driverIn returns the name of the CSI driver with a directory. By convention, the directory has the
// driver's name.
func driverIn(dir string) string {
	name := path.Base(dir)
	if name == "csi-secrets-store" { // of kubernetes-sigs/secrets-store-csi-driver
		return "secrets-store.csi.k8s.io"
	}
	return name
}

// registrationPath returns the value of registrationFlag, with slashes, or "".
func registrationPath(c *corev1.Container) string {
	args := slices.Concat(c.Command, c.Args)
	for i, arg := range args {
		value, found := strings.CutPrefix(arg, registrationFlag+"=")
		if !found && arg == registrationFlag && i+1 < len(args) {
			value, found = args[i+1], true
		}
		if found {
			for _, env := range c.Env {
				value = strings.ReplaceAll(value, "$("+env.Name+")", env.Value)
			}
			return slashes(value)
		}
	}
	return ""
}

// slashes returns a path with slashes instead of the backslashes of Windows.
func slashes(at string) string { return strings.ReplaceAll(at, `\`, "/") }

// writes returns the first hostPath that a container mounts writable and that ends with one
// of these directories. It returns "" if there is none. The parent directories depend on the
// distribution.
func writes(pod *corev1.PodSpec, dirs ...string) string {
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.HostPath == nil {
			continue
		}
		at := path.Clean(slashes(v.HostPath.Path))
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasSuffix(at, "/"+dir) }) && isWritable(pod, v.Name) {
			return at
		}
	}
	return ""
}

func isWritable(pod *corev1.PodSpec, volume string) bool {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly }) {
				return true
			}
		}
	}
	return false
}

// servesDNS returns how the pods serve DNS at an address of the node, or "".
func servesDNS(pod *corev1.PodSpec) string {
	const dns = 53
	for _, c := range running(pod) {
		for _, p := range c.Ports {
			if p.HostPort == dns || pod.HostNetwork && p.ContainerPort == dns {
				return "listens on port 53 of the node"
			}
		}
	}
	return ""
}
