// SPDX-License-Identifier: Apache-2.0

package testcluster_test

import (
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestIdentitiesAuthenticate(t *testing.T) {
	c := clustertest.Shared(t)
	serviceAccount, err := c.ServiceAccount(t.Context(), "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		user, group string
		config      *rest.Config
	}{
		{"admin", "system:masters", c.Admin()},
		{"system:node:a", "system:nodes", c.Node("a")},
		{"jane", "staff", c.User("jane", "visitors", "staff")},
		{"system:serviceaccount:default:default", "system:serviceaccounts:default", serviceAccount},
	} {
		t.Run(test.user, func(t *testing.T) {
			got := whoAmI(t, test.config)
			if got.Username != test.user || !slices.Contains(got.Groups, test.group) {
				t.Errorf("authenticated as %s in %v, want %s in %s", got.Username, got.Groups, test.user, test.group)
			}
		})
		t.Run(test.user+" by kubeconfig", func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := testcluster.WriteKubeconfig(file, test.config); err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", file)
			if err != nil {
				t.Fatal(err)
			}
			if got := whoAmI(t, config); got.Username != test.user {
				t.Errorf("authenticated as %s, want %s", got.Username, test.user)
			}
		})
	}
}

func whoAmI(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func TestServiceAccountMustExist(t *testing.T) {
	c := clustertest.Shared(t)
	if _, err := c.ServiceAccount(t.Context(), "default", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want a NotFound error", err)
	}
}

func TestNodeIsConfinedToItself(t *testing.T) {
	c := clustertest.Shared(t)
	kubelet := clientFor(t, c.Node("confined")).CoreV1().Nodes()
	others := clientFor(t, c.Admin()).CoreV1().Nodes()
	for _, name := range []string{"confined", "other"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := others.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteNode(t, c, name) })
	}
	patch := []byte(`{"metadata":{"labels":{"example.com/a":"b"}}}`)
	if _, err := kubelet.Patch(t.Context(), "confined", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("patching its own node: %v", err)
	}
	_, err := kubelet.Patch(t.Context(), "other", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("patching another node: %v, want Forbidden", err)
	}
	taint := []byte(`{"spec":{"taints":[{"key":"example.com/t","effect":"NoSchedule"}]}}`)
	_, err = kubelet.Patch(t.Context(), "confined", types.MergePatchType, taint, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("changing its own taints: %v, want Forbidden", err)
	}
}
