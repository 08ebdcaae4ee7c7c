// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/connection/connectiontest"
	"github.com/nodegate/nodegate/testcluster"
)

// If the machine of the API server loses power, a replica has another connection within twelve
// seconds.
func TestLostConnection(t *testing.T) {
	failing := connectiontest.TimeToRecover(t, func(dial connectiontest.Dial) func(context.Context) error {
		client := clientOver(t, dial)
		return func(ctx context.Context) error { return client.RESTClient().Get().AbsPath("/version").Do(ctx).Error() }
	})
	if failing == 0 || failing > 12*time.Second+100*time.Millisecond { // the last request may begin just before
		t.Errorf("requests failed for %s, want up to twelve seconds", failing)
	}
}

// Watches survive an API server that is paused for a few seconds. Otherwise, they end with an error
// event, after which a reflector does not resume a watch, but lists everything again.
func TestSilentConnection(t *testing.T) {
	for _, test := range []struct {
		name        string
		environment map[string]string
		silence     time.Duration
		want        watch.EventType
	}{
		{"a pause", nil, 8 * time.Second, watch.Bookmark},
		{"a long pause", nil, 13 * time.Second, watch.Error},
		{"a long pause, with a longer wait for the answer", map[string]string{"HTTP2_PING_TIMEOUT_SECONDS": "15"}, 13 * time.Second, watch.Bookmark},
		{"a long pause, with a later ping", map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "30"}, 13 * time.Second, watch.Bookmark},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.environment {
				t.Setenv(name, value)
			}
			got := connectiontest.AfterSilence(t, test.silence, func(ctx context.Context, dial connectiontest.Dial) (watch.Interface, error) {
				return clientOver(t, dial).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
			})
			if got != test.want {
				t.Errorf("the next event is %s, want %s", got, test.want)
			}
		})
	}
}

// clientOver returns a client with nodegate's configuration that uses the connections of dial.
func clientOver(t *testing.T, dial connectiontest.Dial) *kubernetes.Clientset {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, &rest.Config{Host: "https://test"}); err != nil {
		t.Fatal(err)
	}
	config, err := restConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial, config.Insecure = dial, true
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
