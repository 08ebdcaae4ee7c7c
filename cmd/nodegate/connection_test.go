// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/connection/connectiontest"
	"github.com/nodegate/nodegate/testcluster"
)

// If the machine of the API server loses power, a replica has another connection within seven
// seconds.
func TestLostConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, &rest.Config{Host: "https://test"}); err != nil {
		t.Fatal(err)
	}
	config, err := restConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	failing := connectiontest.TimeToRecover(t, func(dial connectiontest.Dial) func(context.Context) error {
		config.Dial, config.Insecure = dial, true
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error { return client.RESTClient().Get().AbsPath("/version").Do(ctx).Error() }
	})
	if failing == 0 || failing > 7*time.Second {
		t.Errorf("requests failed for %s, want up to seven seconds", failing)
	}
}
