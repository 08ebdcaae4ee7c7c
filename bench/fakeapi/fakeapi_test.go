// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const namespace = "daemons"

// smallFleet returns a fleet of three nodes with two daemons.
func smallFleet() Fleet {
	daemon := func(name string) Daemon {
		set := labels.Set{"app": name}
		return Daemon{Labels: set, Pod: func(i int) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Namespace: namespace, Labels: set},
				Spec:       corev1.PodSpec{NodeName: fmt.Sprint("node-", i)},
			}
		}}
	}
	return Fleet{
		Nodes: 3, Namespace: namespace, Daemons: []Daemon{daemon("a"), daemon("b")}, Heartbeats: 50,
		Node: func(i int) *corev1.Node {
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}},
			}
		},
	}
}

// start starts a proxy, in front of a server that responds to each request with its
// token, and returns a client of the proxy.
func start(t *testing.T, fleet Fleet) (*Server, *kubernetes.Clientset) {
	t.Helper()
	real := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("Authorization"), http.StatusTeapot)
	}))
	t.Cleanup(real.Close)
	config := &rest.Config{Host: real.URL, QPS: -1, BearerToken: "secret"}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: real.Certificate().Raw})
	s, err := Start(fleet, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	config = s.Config(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+",application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// An informer receives all objects as initial events, and then heartbeats.
func TestInformer(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	s, client := start(t, smallFleet())
	beats := make(chan *corev1.Node, 1000)
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) { beats <- now.(*corev1.Node) }},
	})
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	for reported := map[string]bool{}; len(reported) < 3; {
		node := <-beats
		reported[node.Name] = true
		if node.Status.Conditions[0].LastHeartbeatTime.Time.Before(began) {
			t.Fatalf("the heartbeat of %s is old: %v", node.Name, node.Status.Conditions)
		}
	}
	if s.WatchLists.Load() != 1 || s.Initial.Load() != 3 || s.InitialBytes.Load() < 100 {
		t.Errorf("%d WatchLists, %d objects, %d bytes", s.WatchLists.Load(), s.Initial.Load(), s.InitialBytes.Load())
	}
}

// Initial events are the selected pods, and end with a bookmark. They are sent only if
// they are requested.
func TestInitialEvents(t *testing.T) {
	_, client := start(t, smallFleet())
	for selector, want := range map[string]int{"app=a": 3, "app in (a,b)": 6, "": 6, "app=c": 0} {
		w, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{
			LabelSelector: selector, SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for event := range w.ResultChan() {
			pod := event.Object.(*corev1.Pod)
			if event.Type == watch.Bookmark {
				if pod.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
					t.Errorf("the bookmark has annotations %v", pod.Annotations)
				}
				break
			}
			got[pod.Name+pod.Spec.NodeName] = true
		}
		w.Stop()
		if len(got) != want {
			t.Errorf("selector %q: %d pods, want %d", selector, len(got), want)
		}
	}
	w, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	for event := range w.ResultChan() {
		t.Errorf("%s without a request for initial events", event.Type)
	}
}

// Writes to the fleet are rejected. Requests about anything else are forwarded with the
// client's token.
func TestOtherRequests(t *testing.T) {
	s, client := start(t, smallFleet())
	patch := []byte("[]")
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node-0", types.JSONPatchType, patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("patching a node: %v", err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("listing nodes: %v", err)
	}
	for what, request := range map[string]func(context.Context) error{
		"other pods": func(ctx context.Context) error {
			_, err := client.CoreV1().Pods("other").List(ctx, metav1.ListOptions{})
			return err
		},
		"a new node": func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{}, metav1.CreateOptions{})
			return err
		},
	} {
		status, ok := request(t.Context()).(apierrors.APIStatus)
		if !ok || status.Status().Code != http.StatusTeapot {
			t.Errorf("%s: not forwarded: %v", what, status)
		}
	}
	if s.Writes.Load() != 1 {
		t.Errorf("%d writes, want 1", s.Writes.Load())
	}
}
