// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	labels = 40 // of a node
	images = 50 // that a kubelet reports at most, by default
	zones  = 3
)

// Node returns a node as its kubelet registers it: of the size and shape of one
// in a managed cluster, with a boot ID of its own.
func Node(name string, now time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels(name), Annotations: map[string]string{
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"csi.volume.kubernetes.io/nodeid":                        `{"csi.example.com":"` + name + `"}`,
		}},
		Spec: corev1.NodeSpec{
			ProviderID: "example:///zone/" + name,
			PodCIDR:    "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"},
		},
		Status: corev1.NodeStatus{
			Capacity: capacity(), Allocatable: capacity(),
			Conditions: conditions(metav1.NewTime(now)),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.1.2.3"},
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalDNS, Address: name + ".internal.example.com"},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: string(uuid.NewUUID()), SystemUUID: string(uuid.NewUUID()), BootID: string(uuid.NewUUID()),
				KernelVersion: "6.12.58-82.121.x86_64", OSImage: "Example Linux 2026.1 (Container Optimised)",
				ContainerRuntimeVersion: "containerd://2.4.2", KubeletVersion: "v1.37.1",
				OperatingSystem: "linux", Architecture: "amd64",
			},
			Images: nodeImages(),
		},
	}
}

func nodeLabels(name string) map[string]string {
	all := map[string]string{
		"kubernetes.io/hostname":           name,
		"kubernetes.io/os":                 "linux",
		"kubernetes.io/arch":               "amd64",
		"node.kubernetes.io/instance-type": "m7.2xlarge",
		"topology.kubernetes.io/region":    "region-1",
		"topology.kubernetes.io/zone":      fmt.Sprintf("region-1%c", 'a'+rune(name[len(name)-1])%zones),
	}
	for i := len(all); i < labels; i++ {
		all[fmt.Sprintf("example.com/feature-%02d", i)] = fmt.Sprintf("value-%02d", i)
	}
	return all
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("8"),
		corev1.ResourceMemory:           resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

// conditions are the kubelet's four and one of a problem detector, each with a
// heartbeat.
func conditions(now metav1.Time) []corev1.NodeCondition {
	all := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
		{Type: "KernelDeadlock", Status: corev1.ConditionFalse, Reason: "KernelHasNoDeadlock", Message: "kernel has no deadlock"},
	}
	for i := range all {
		all[i].LastHeartbeatTime, all[i].LastTransitionTime = now, now
	}
	return all
}

func nodeImages() []corev1.ContainerImage {
	var all []corev1.ContainerImage
	for i := range images {
		repository := fmt.Sprintf("registry.example.com/platform/component-%02d", i)
		all = append(all, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, i), repository + ":v1.2.3"},
			SizeBytes: int64(20+i) << 20,
		})
	}
	return all
}
