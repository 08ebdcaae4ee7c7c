// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CloudNode returns a Node of the size that is typical in clouds: 40 labels, three of
// them unique and the others shared with its pool, zone or instance type, five
// conditions, and the records of two gates.
func CloudNode(i int) *corev1.Node {
	name := fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255)
	created := metav1.Unix(1767000000+int64(i)*7, 0)
	n := PlainNode(name)
	n.UID, n.ResourceVersion, n.CreationTimestamp = types.UID(uuid.NewString()), fmt.Sprint(1_000_000+i), created
	n.Status.NodeInfo.BootID = uuid.NewString()
	n.Labels = map[string]string{
		corev1.LabelHostname: name, "example.com/instance-id": fmt.Sprintf("i-%017x", i*7919), "example.com/serial": fmt.Sprint("SN", i*104729),
		corev1.LabelTopologyZone: fmt.Sprintf("eu-west-1%c", 'a'+i%3),
	}
	for l := len(n.Labels); l < 40; l++ {
		n.Labels[fmt.Sprintf("topology.example.com/label-%02d", l)] = fmt.Sprintf("value-%d", (i%20+l)%7)
	}
	n.Annotations = map[string]string{"csi.example.com/nodeid": name}
	for _, g := range []string{"cilium", "storage"} {
		since := created.Add(time.Duration(10_000+i) * time.Millisecond).UTC().Format("2006-01-02T15:04:05.999Z07:00")
		n.Annotations["gate.nodegate.dev/"+g] = `{"state":"Open","since":"` + since + `","reason":"SignalsHold","boot":"` + n.Status.NodeInfo.BootID + `","source":"crd"}`
	}
	n.Status.Conditions = nil
	for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: corev1.ConditionFalse, Reason: "KubeletHasNo" + string(c), Message: "kubelet has no " + string(c),
			LastTransitionTime: created, LastHeartbeatTime: metav1.NewTime(created.Add(time.Hour)),
		})
	}
	n.Status.Conditions[4].Status, n.Status.Conditions[4].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(created.Add(20*time.Second))
	return n
}

// CloudPod returns a daemon's pod on CloudNode(i).
func CloudPod(daemon string, i int) *corev1.Pod {
	created := metav1.Unix(1767000001+int64(i)*7, 0)
	p := Pod(fmt.Sprintf("%s-%05x", daemon, i), types.UID(uuid.NewString()), fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255), true)
	p.Namespace, p.CreationTimestamp = "kube-system", created
	p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(uuid.NewSHA1(uuid.Nil, []byte(daemon)).String()), Controller: new(true)}}
	p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(created.Add(15 * time.Second))
	p.Status.ContainerStatuses[0].ContainerID = "containerd://" + uuid.NewString() + uuid.NewString()
	return p
}

// PlainNode returns a Node with a typical list of images.
func PlainNode(name string) *corev1.Node {
	n := Node(name, types.UID("uid-"+name))
	n.Labels = map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "z"}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi")}
	for i := range 40 {
		image := fmt.Sprintf("registry.example.com/a-team/some-image-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image + ":v1", image + "@sha256:" + strings.Repeat("0", 64)}})
	}
	return n
}
