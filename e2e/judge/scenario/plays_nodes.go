// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// kubeletAnnotation is an annotation that kubelets write.
const kubeletAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// atWork makes the writes that a node needs, with the kubelet's credentials: it registers with
// the gate's taint, reports its status and an annotation, renews its Lease, and creates its
// CSINode. Then Kubernetes' own controller deletes the Node.
func atWork(p *play) {
	n := p.registers("at-work", "net", tainted(key("net")), annotated("example.com/note", "x"))
	n.becomes("net", closed)
	p.check("renewing the Lease", n.Renew(p))
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, kubeletAnnotation)
	_, err := n.kubelet.CoreV1().Nodes().Patch(p, n.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	p.check("writing an annotation", err)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.get().UID}
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{owner}}}
	_, err = n.kubelet.StorageV1().CSINodes().Create(p, csi, metav1.CreateOptions{})
	p.check("creating the CSINode", err)
	n.reports("Net", corev1.ConditionTrue)
	n.becomes("net", opened)
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
	p.check("renewing the Lease", n.Renew(p))

	controller, err := kubernetes.NewForConfig(p.Cluster.User("system:serviceaccount:kube-system:node-controller"))
	p.check("creating a client", err)
	p.check("deleting the Node", controller.CoreV1().Nodes().Delete(p, n.Name, metav1.DeleteOptions{}))
}
