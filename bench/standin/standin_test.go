// SPDX-License-Identifier: Apache-2.0

package standin

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

// small is a fleet of three nodes with two daemons.
func small() Fleet {
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

// started returns a stand-in for a server that answers every request with the
// token that came with it, and a client of the stand-in.
func started(t *testing.T, fleet Fleet) (*Server, *kubernetes.Clientset) {
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
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	config = s.Config(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+",application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// A reflector gets everything in one WatchList, and heartbeats after it.
func TestReflectorIsSatisfied(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	s, client := started(t, small())
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
	beaten := map[string]bool{}
	for len(beaten) < 3 {
		node := <-beats
		beaten[node.Name] = true
		if node.Status.Conditions[0].LastHeartbeatTime.Time.Before(began) {
			t.Fatalf("the heartbeat of %s is old: %v", node.Name, node.Status.Conditions)
		}
	}
	if c := s.Counts(); c.WatchLists != 1 || c.Pages != 0 || c.Initial != 3 || c.InitialBytes < 100 || c.Heartbeats < 3 {
		t.Errorf("the stand-in counted %+v", c)
	}
}

// Pods are those that a selector selects, in pages as well as in one.
func TestPages(t *testing.T) {
	_, client := started(t, small())
	for selector, want := range map[string]int{"app=a": 3, "app in (a,b)": 6, "": 6, "app=c": 0} {
		for _, limit := range []int64{0, 1, 2, 100} {
			got := map[string]bool{}
			options := metav1.ListOptions{LabelSelector: selector, Limit: limit}
			for {
				page, err := client.CoreV1().Pods(namespace).List(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				for _, pod := range page.Items {
					got[pod.Name+pod.Spec.NodeName] = true
				}
				if limit > 0 && len(page.Items) > int(limit) {
					t.Errorf("selector %q, limit %d: a page of %d", selector, limit, len(page.Items))
				}
				if options.Continue = page.Continue; options.Continue == "" {
					break
				}
			}
			if len(got) != want {
				t.Errorf("selector %q, limit %d: %d pods, want %d", selector, limit, len(got), want)
			}
		}
	}
}

// A watch without an initial state says nothing of what is there already.
func TestWatchFromHere(t *testing.T) {
	fleet := small()
	fleet.Heartbeats = 0
	_, client := started(t, fleet)
	second := int64(1)
	w, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &second})
	if err != nil {
		t.Fatal(err)
	}
	for event := range w.ResultChan() {
		t.Errorf("unexpected %s", event.Type)
	}
}

// The initial state ends with a bookmark that says so.
func TestInitialStateEnds(t *testing.T) {
	_, client := started(t, small())
	w, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	added := 0
	for event := range w.ResultChan() {
		if event.Type == watch.Bookmark {
			if mark := event.Object.(*corev1.Pod); mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("the bookmark has annotations %v", mark.Annotations)
			}
			break
		}
		added++
	}
	if added != 6 {
		t.Errorf("%d pods before the bookmark, want 6", added)
	}
}

// Nothing of the fleet can be changed, and what is not the fleet's is answered by
// the real API server, to whoever asked.
func TestTheRestIsPassedOn(t *testing.T) {
	s, client := started(t, small())
	patch := []byte("[]")
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node-0", types.JSONPatchType, patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("patching a node: %v", err)
	}
	for what, ask := range map[string]func(context.Context) error{
		"other pods": func(ctx context.Context) error {
			_, err := client.CoreV1().Pods("other").List(ctx, metav1.ListOptions{})
			return err
		},
		"a new node": func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{}, metav1.CreateOptions{})
			return err
		},
	} {
		status, ok := ask(t.Context()).(apierrors.APIStatus)
		if !ok || status.Status().Code != http.StatusTeapot {
			t.Errorf("%s: not answered by the real server: %v", what, status)
		}
	}
	if c := s.Counts(); c.Writes != 1 || c.PassedOn != 2 {
		t.Errorf("the stand-in counted %+v", c)
	}
}
