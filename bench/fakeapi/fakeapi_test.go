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

// Changes reach watches that exist, watches that resume, and new watches. A patch of a
// Node is a change, too.
func TestChanges(t *testing.T) {
	fleet := smallFleet()
	fleet.Heartbeats = 0
	fleet.Index = func(name string) (i int, ok bool) {
		_, err := fmt.Sscanf(name, "node-%d", &i)
		return i, err == nil
	}
	s, client := start(t, fleet)
	initial := metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	before := watchNodes(t, client, initial)
	before.expect(t, "ADDED node-0 ", "ADDED node-1 ", "ADDED node-2 ", "BOOKMARK  ")

	joined := fleet.Node(3)
	s.PutNode(3, joined)
	before.expect(t, "ADDED node-3 ")
	s.PutPod(1, 3, fleet.Daemons[1].Pod(3))
	patch := []byte(`[{"op":"test","path":"/metadata/name","value":"node-1"},{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`)
	patched, err := client.CoreV1().Nodes().Patch(t.Context(), "node-1", types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil || patched.Annotations["a"] != "b" {
		t.Fatalf("%+v, %v", patched, err)
	}
	before.expect(t, "MODIFIED node-1 b")
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node-2", types.JSONPatchType, patch, metav1.PatchOptions{}); err == nil {
		t.Error("a patch whose test fails is accepted")
	}
	if all := s.Patches(); len(all) != 1 || all[0].Node != 1 {
		t.Errorf("patches: %+v", all)
	}
	if read, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil || read.ResourceVersion != patched.ResourceVersion {
		t.Errorf("%+v, %v", read, err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "node-4", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading an unknown node: %v", err)
	}
	watchNodes(t, client, initial).expect(t, "ADDED node-0 ", "ADDED node-1 b", "ADDED node-2 ", "ADDED node-3 ", "BOOKMARK  ")
	watchNodes(t, client, metav1.ListOptions{ResourceVersion: joined.ResourceVersion}).expect(t, "MODIFIED node-1 b")
	pods, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1", LabelSelector: "app=b"})
	if err != nil {
		t.Fatal(err)
	}
	watched{pods}.expect(t, "ADDED b-3 ")
}

// watched is a watch whose events are expected in order.
type watched struct{ watch.Interface }

func watchNodes(t *testing.T, client *kubernetes.Clientset, o metav1.ListOptions) watched {
	t.Helper()
	w, err := client.CoreV1().Nodes().Watch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return watched{w}
}

// expect reads events, each as its type, the name of the object, and its annotation a.
func (w watched) expect(t *testing.T, events ...string) {
	t.Helper()
	for _, want := range events {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended, want %q", want)
		}
		o := event.Object.(metav1.Object)
		if got := fmt.Sprintf("%s %s %s", event.Type, o.GetName(), o.GetAnnotations()["a"]); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}
