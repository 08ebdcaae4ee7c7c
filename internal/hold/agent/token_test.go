// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// A pod may outlive its Node, if another Node gets the same name within a minute. A token of the pod that
// was issued before is then useless, and the next one that the kubelet requests can announce shutdowns.
func TestTokenOfADeletedNode(t *testing.T) {
	s := kubetest.Start(t)
	apply(t, s, "../../../deploy/agent/announces-shutdowns.yaml")
	s.Node(t, "reused", booted)
	pod := agentPod(t, s, "reused")
	announce := func(token string) error {
		t.Helper()
		config := rest.AnonymousClientConfig(s.Admin())
		config.BearerToken = token
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Nodes().Patch(t.Context(), "reused", types.StrategicMergePatchType, []byte(conditions(announcement)),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}

	old := tokenOf(t, s, pod)
	kubetest.Eventually(t, "the token of the first Node", func() bool { return announce(old) == nil })
	if err := s.CoreV1().Nodes().Delete(t.Context(), "reused", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Node(t, "reused", booted)
	kubetest.Eventually(t, "the denial of the token of the deleted Node", func() bool { // the API server has to learn of the policy
		err := announce(old)
		return err != nil && strings.Contains(err.Error(), "own node")
	})
	// The API server may issue the token with what its cache has of the Node.
	kubetest.Eventually(t, "the token of the second Node", func() bool { return announce(tokenOf(t, s, pod)) == nil })
}

// agentPod creates a pod of the agent on a node.
func agentPod(t *testing.T, s *kubetest.Server, node string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-", Namespace: "kube-system"},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "nodegate-agent", Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	pod, err := s.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
			t.Error(err)
		}
	})
	return pod
}

// tokenOf requests a token for a pod as the kubelet of its node does.
func tokenOf(t *testing.T, s *kubetest.Server, pod *corev1.Pod) (token string) {
	t.Helper()
	kubelet, err := kubernetes.NewForConfig(s.User("system:node:"+pod.Spec.NodeName, "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	kubetest.Eventually(t, "the kubelet's authorization", func() bool { // the authorizer has to learn of the pod
		got, err := kubelet.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err == nil {
			token = got.Status.Token
		}
		return err == nil
	})
	return token
}
