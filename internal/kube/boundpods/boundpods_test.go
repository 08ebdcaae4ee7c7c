// SPDX-License-Identifier: Apache-2.0

package boundpods

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
)

func TestBoundPod(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
	start := func(second int64, running bool) gate.Start {
		return gate.Start{At: time.Unix(second, 0).UTC(), Running: running}
	}
	runs := func(since int64) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(since)}}
	}
	ended := func(since int64) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(since)}}
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	owner := func(kind string, controls bool) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			o.OwnerReferences = []metav1.OwnerReference{{Kind: kind, UID: "owner", Controller: &controls}}
		}
	}
	// failed returns the state of a pod that failed for a reason, with managed fields.
	failed := func(reason string, fields ...metav1.ManagedFieldsEntry) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			o.Status.Phase, o.Status.Reason, o.ManagedFields = corev1.PodFailed, reason, fields
		}
	}
	owning := func(second int64, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(at(second)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const (
		phaseFields     = `{"f:status":{"f:phase":{},"f:reason":{},"f:startTime":{}}}`
		conditionFields = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:reason":{}}}}}`
	)
	rejected := func(r gate.Rejection) gate.BoundPod { return gate.BoundPod{Finished: true, Rejection: &r} }
	endedAt := func(second int64) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(second)}}
	}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		want gate.BoundPod
	}{
		"rejected": {
			func(o *corev1.Pod) {
				failed("UnexpectedAdmissionError", owning(6, phaseFields), owning(7, conditionFields), owning(8, "{"), metav1.ManagedFieldsEntry{})(o)
				o.Status.StartTime = new(at(5))
			},
			rejected(gate.Rejection{Reason: "UnexpectedAdmissionError", Start: time.Unix(5, 0).UTC(), Reported: time.Unix(6, 0).UTC()}),
		},
		"rejected, and written again": {
			func(o *corev1.Pod) {
				failed("UnexpectedAdmissionError", owning(9, phaseFields))(o)
				o.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodInitialized, LastTransitionTime: at(7)}, {Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(8)},
				}
			},
			rejected(gate.Rejection{Reason: "UnexpectedAdmissionError", Reported: time.Unix(8, 0).UTC()}),
		},
		"rejected, with a clock that is ahead": {
			func(o *corev1.Pod) {
				failed("UnexpectedAdmissionError", owning(9, phaseFields))(o)
				o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: at(10)}}
			},
			rejected(gate.Rejection{Reason: "UnexpectedAdmissionError", Reported: time.Unix(9, 0).UTC()}),
		},
		"rejected at an unknown time": {failed("UnexpectedAdmissionError"), rejected(gate.Rejection{Reason: "UnexpectedAdmissionError"})},
		"rejected, with containers": {func(o *corev1.Pod) {
			failed("UnexpectedAdmissionError")(o)
			o.Status.ContainerStatuses = []corev1.ContainerStatus{{State: endedAt(3)}, {State: endedAt(4)}, {State: waits}}
		}, rejected(gate.Rejection{Reason: "UnexpectedAdmissionError", Ended: time.Unix(4, 0).UTC()})},
		"failed without a reason": {failed("", owning(6, phaseFields)), gate.BoundPod{Finished: true}},
		"succeeded for a reason": {func(o *corev1.Pod) {
			o.Status.Phase, o.Status.Reason = corev1.PodSucceeded, "Done"
		}, gate.BoundPod{Finished: true}},
		"not owned":           {func(*corev1.Pod) {}, gate.BoundPod{}},
		"of a ReplicaSet":     {owner("ReplicaSet", true), gate.BoundPod{Owned: true}},
		"of a DaemonSet":      {owner("DaemonSet", true), gate.BoundPod{Owned: true, Daemon: true}},
		"owned, uncontrolled": {owner("DaemonSet", false), gate.BoundPod{}},
		"a mirror": {func(o *corev1.Pod) {
			owner("Node", true)(o)
			o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, gate.BoundPod{Owned: true, Mirror: true}},
		"with the node's network": {func(o *corev1.Pod) { o.Spec.HostNetwork = true }, gate.BoundPod{HostNetwork: true}},
		"succeeded":               {func(o *corev1.Pod) { o.Status.Phase = corev1.PodSucceeded }, gate.BoundPod{Finished: true}},
		"failed":                  {func(o *corev1.Pod) { o.Status.Phase = corev1.PodFailed }, gate.BoundPod{Finished: true}},
		"terminating":             {func(o *corev1.Pod) { o.DeletionTimestamp = new(at(9)) }, gate.BoundPod{Terminating: true}},
		"bound": {func(o *corev1.Pod) {
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(5)}}
		}, gate.BoundPod{Bound: time.Unix(5, 0).UTC()}},
		"with containers": {func(o *corev1.Pod) {
			o.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: ended(1)}}
			o.Status.ContainerStatuses = []corev1.ContainerStatus{
				{State: runs(2), LastTerminationState: ended(1)}, {State: waits, LastTerminationState: ended(3)}, {State: waits}, {},
			}
		}, gate.BoundPod{Starts: []gate.Start{{At: time.Unix(1, 0).UTC(), Init: true}, start(2, true), start(3, false)}}},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", CreationTimestamp: at(4)}}
		c.pod(o)
		want := c.want
		want.Namespace, want.Name, want.UID, want.ResourceVersion, want.Created = "ns", "p", "u", "7", time.Unix(4, 0).UTC()
		if got := BoundPod(o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
		if got := listed(t, wiretest.Encode(t, &corev1.PodList{Items: []corev1.Pod{*o}})); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s, in a list:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// listed returns what a Client lists if an API server sends a list.
func listed(t *testing.T, list []byte) []gate.BoundPod {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.String(); got != "/api/v1/pods?fieldSelector=spec.nodeName%3Dn" {
			t.Errorf("requested %s", got)
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(list)
	}))
	defer server.Close()
	pods, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := pods.List(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Users can create many large pods for a node. A list of them needs a fraction of its own size,
// because neither the whole list nor the pods' containers are kept.
func TestManyLargePodsNeedLittleMemory(t *testing.T) {
	large := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: make([]string, 460_000)}}}}
	large.Spec.Tolerations = make([]corev1.Toleration, maxTolerations)
	list := &corev1.PodList{}
	for i := range 60 {
		large.Name = fmt.Sprint("pod-", i)
		list.Items = append(list.Items, large)
	}
	data := wiretest.Encode(t, list)
	list = nil
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	pods := listed(t, data)
	goruntime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > uint64(len(data))/4 {
		t.Errorf("%d MiB were allocated for a list of %d MiB", allocated>>20, len(data)>>20)
	}
	if len(pods) != 60 || pods[59].Name != "pod-59" || len(pods[59].Tolerations) != maxTolerations {
		t.Errorf("%d pods", len(pods))
	}
}

// Of a pod, a limited amount is kept. If it has too many tolerations, it is unknown what it
// tolerates.
func TestLittleIsKeptOfAPod(t *testing.T) {
	o := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: make([]corev1.Toleration, 140_000)}}
	o.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: strings.Repeat("x", 1<<20)}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1, 0)}}}
	o.Status.ContainerStatuses = slices.Repeat([]corev1.ContainerStatus{running}, 50_000)
	p := listed(t, wiretest.Encode(t, &corev1.PodList{Items: []corev1.Pod{*o}}))[0]
	if len(p.Tolerations) != 0 || !p.ManyTolerations || p.Rejection != nil || len(p.Starts) != maxStarts || !p.Finished {
		t.Errorf("%d tolerations, %d starts, rejection %v", len(p.Tolerations), len(p.Starts), p.Rejection != nil)
	}
}

// Users can create any number of pods for a node, each with many tolerations. Of all pods together, a
// limited number is kept.
func TestFewTolerationsAreKeptOfManyPods(t *testing.T) {
	o := corev1.Pod{Spec: corev1.PodSpec{Tolerations: make([]corev1.Toleration, maxTolerations)}}
	list := &corev1.PodList{Items: slices.Repeat([]corev1.Pod{o}, 2*maxAllTolerations/maxTolerations)}
	kept, unknown := 0, 0
	for _, p := range listed(t, wiretest.Encode(t, list)) {
		kept += len(p.Tolerations)
		if p.ManyTolerations {
			unknown++
		}
	}
	if kept > maxAllTolerations || kept < maxAllTolerations-maxTolerations || unknown != len(list.Items)-kept/maxTolerations {
		t.Errorf("%d tolerations are kept, and those of %d pods are unknown", kept, unknown)
	}
}

// A webhook that denies an eviction may choose any code. The pod is not gone then, and has
// not changed.
func TestEvictionThatIsDenied(t *testing.T) {
	const denial = `admission webhook "w" denied the request: no`
	for name, c := range map[string]struct {
		code    int32
		message string
		want    Eviction
	}{
		"no such pod":               {http.StatusNotFound, `pods "p" not found`, Evicted},
		"the pod has changed":       {http.StatusConflict, "the UID in the precondition does not match", EvictionOutdated},
		"denied as forbidden":       {http.StatusForbidden, denial, EvictionDenied},
		"denied as not found":       {http.StatusNotFound, denial, EvictionDenied},
		"denied as a conflict":      {http.StatusConflict, denial, EvictionDenied},
		"denied for the time being": {http.StatusTooManyRequests, denial, EvictionBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(c.code))
				_ = json.NewEncoder(w).Encode(metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
					Status:   metav1.StatusFailure, Code: c.code, Message: c.message,
				})
			}))
			defer server.Close()
			pods, err := New(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			got, err := pods.Evict(t.Context(), &gate.BoundPod{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7"})
			if got != c.want || (err == nil) != (got == Evicted) {
				t.Errorf("%s and %v, want %s", got, err, c.want)
			}
		})
	}
}

// The 404 of a proxy does not show that the pod is gone.
func TestEvictionThroughAProxy(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	pods, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pods.Evict(t.Context(), &gate.BoundPod{Namespace: "ns", Name: "p"}); got != EvictionFailed || err == nil {
		t.Errorf("%s and %v, want %s", got, err, EvictionFailed)
	}
}

// An API server lists the pods of one node only. It evicts pods only in the listed
// version and if PodDisruptionBudgets allow it, and does not wait for them.
func TestClientWithAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	pods, err := New(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	_, _ = s.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}) // another test may have created it
	create := func(name, node string) *corev1.Pod {
		t.Helper()
		o, err := s.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = s.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		})
		o.Status.Phase = corev1.PodRunning // PodDisruptionBudgets do not apply to pending pods
		o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if o, err = s.CoreV1().Pods("default").UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return o
	}
	all := func() []gate.BoundPod {
		t.Helper()
		list, err := pods.List(t.Context(), "listed")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	evict := func(p gate.BoundPod, want Eviction) {
		t.Helper()
		if got, err := pods.Evict(t.Context(), &p); got != want || (err == nil) != (got == Evicted) {
			t.Errorf("evicting %s: %s and %v, want %s", p.Name, got, err, want)
		}
	}
	create("elsewhere", "another")
	guarded, free := create("guarded", "listed"), create("free", "listed")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels}}}
	if _, err := s.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.PolicyV1().PodDisruptionBudgets("default").Delete(context.Background(), "guarded", metav1.DeleteOptions{})
	})
	list := all()
	slices.SortFunc(list, func(a, b gate.BoundPod) int { return len(a.Name) - len(b.Name) })
	if len(list) != 2 || list[0].UID != free.UID || list[1].UID != guarded.UID {
		t.Fatalf("pods of the node: %+v", list)
	}
	evict(list[1], EvictionBlocked)
	replaced := list[0]
	replaced.UID = "of-another-pod"
	evict(replaced, EvictionOutdated)
	free.Status.Message = "changed"
	if _, err := s.CoreV1().Pods("default").UpdateStatus(t.Context(), free, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	evict(list[0], EvictionOutdated)
	again := all()
	i := slices.IndexFunc(again, func(p gate.BoundPod) bool { return p.UID == free.UID })
	evict(again[i], Evicted)
	gone := again[i]
	gone.Name = "never-was"
	evict(gone, Evicted)
	denied, err := New(s.User("nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := denied.Evict(t.Context(), &list[1]); got != EvictionDenied {
		t.Errorf("eviction without permission: %s and %v", got, err)
	}
}
