// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// fakeAPI is as much of an API server as feeds see.
type fakeAPI struct {
	mu      sync.Mutex
	version int
	kinds   map[string]*fakeKind
	// definition and definitionErr are what reading the definition returns.
	definition    *metav1.PartialObjectMetadata
	definitionErr error
	// definitionReads counts how often it was read.
	definitionReads int
	// onDefinition is called while the definition is being read, if not nil.
	onDefinition func()
}

// fakeKind serves one kind of objects.
type fakeKind struct {
	api  *fakeAPI
	one  runtime.Object
	many runtime.Object

	objects  map[string]runtime.Object
	log      []watch.Event
	watchers []*watch.RaceFreeFakeWatcher
	// err fails all requests, streamErr those that stream the initial list.
	err, streamErr error
	// since is the oldest version from which a watch can go on.
	since int
	// onRead is called when everything is about to be read, if not nil.
	onRead func()
	lists  int
	calls  int
}

func newFakeAPI() *fakeAPI {
	a := &fakeAPI{version: 10, kinds: make(map[string]*fakeKind)}
	a.definition = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: "definition", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}
	return a
}

func (a *fakeAPI) kind(name string, one, many runtime.Object) *fakeKind {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kinds[name] == nil {
		a.kinds[name] = &fakeKind{api: a, one: one, many: many, objects: make(map[string]runtime.Object)}
	}
	return a.kinds[name]
}

func (a *fakeAPI) nodes() *fakeKind { return a.kind("nodes", &corev1.Node{}, &corev1.NodeList{}) }
func (a *fakeAPI) gates() *fakeKind {
	return a.kind("gates", &storedGate{}, &storedGates{})
}
func (a *fakeAPI) daemonSets(namespace string) *fakeKind {
	return a.kind("daemonsets/"+namespace, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{})
}
func (a *fakeAPI) pods(q gate.PodQuery) *fakeKind {
	return a.kind("pods/"+q.Namespace+"/"+q.Selector, &corev1.Pod{}, &corev1.PodList{})
}

func (a *fakeAPI) csiNodes() *fakeKind {
	return a.kind("csinodes", &storagev1.CSINode{}, &storagev1.CSINodeList{})
}

func (a *fakeAPI) slices(driver string) *fakeKind {
	return a.kind("resourceslices/"+driver, &resourcev1.ResourceSlice{}, &resourcev1.ResourceSliceList{})
}

func (a *fakeAPI) sources() sources {
	return sources{
		nodes:          a.nodes().listWatch(),
		gates:          a.gates().listWatch(),
		daemonSets:     func(namespace string) *cache.ListWatch { return a.daemonSets(namespace).listWatch() },
		pods:           func(q gate.PodQuery) *cache.ListWatch { return a.pods(q).listWatch() },
		csiNodes:       a.csiNodes().listWatch(),
		resourceSlices: func(driver string) *cache.ListWatch { return a.slices(driver).listWatch() },
		node: func(_ context.Context, name string) (*corev1.Node, error) {
			k := a.nodes()
			a.mu.Lock()
			defer a.mu.Unlock()
			if o, ok := k.objects[name]; ok {
				return o.DeepCopyObject().(*corev1.Node), nil
			}
			return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
		},
		definition: func(context.Context) (*metav1.PartialObjectMetadata, error) {
			a.mu.Lock()
			a.definitionReads++
			definition, err, on := a.definition.DeepCopy(), a.definitionErr, a.onDefinition
			a.mu.Unlock()
			if on != nil {
				on()
			}
			if err != nil {
				return nil, err
			}
			return definition, nil
		},
	}
}

// set changes how the API behaves, or what it has.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// put creates or updates an object, and returns it as it is stored.
func (k *fakeKind) put(o metav1.Object) runtime.Object {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	if ng, ok := o.(*v1alpha1.NodeGate); ok {
		o = &storedGate{*ng}
	}
	stored := o.(runtime.Object).DeepCopyObject()
	k.stamp(stored)
	_, known := k.objects[o.GetName()]
	k.objects[o.GetName()] = stored
	if known {
		k.send(watch.Modified, stored)
	} else {
		k.send(watch.Added, stored)
	}
	return stored.DeepCopyObject()
}

func (k *fakeKind) remove(name string) {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	gone := k.objects[name].DeepCopyObject()
	delete(k.objects, name)
	k.stamp(gone)
	k.send(watch.Deleted, gone)
}

func (k *fakeKind) stamp(o runtime.Object) {
	k.api.version++
	m, _ := meta.Accessor(o)
	m.SetResourceVersion(strconv.Itoa(k.api.version))
}

func (k *fakeKind) send(t watch.EventType, o runtime.Object) {
	k.log = append(k.log, watch.Event{Type: t, Object: o})
	for _, w := range k.watchers {
		if !w.IsStopped() {
			w.Action(t, o.DeepCopyObject())
		}
	}
}

// hangUp ends all watches.
func (k *fakeKind) hangUp() {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	for _, w := range k.watchers {
		w.Stop()
	}
	k.watchers = nil
}

// forget has watches begin anew: nobody can go on where it was.
func (k *fakeKind) forget() {
	k.hangUp()
	k.api.set(func() { k.since, k.log = k.api.version+1, nil })
}

// expire tells all watches that they have fallen too far behind.
func (k *fakeKind) expire() {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	for _, w := range k.watchers {
		w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
	}
	k.watchers = nil
}

func (k *fakeKind) read() {
	k.api.mu.Lock()
	on := k.onRead
	k.api.mu.Unlock()
	if on != nil {
		on()
	}
}

func (k *fakeKind) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			k.read()
			return k.list(o)
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				k.read()
			}
			return k.watch(o)
		},
	}
}

func (k *fakeKind) list(o metav1.ListOptions) (runtime.Object, error) {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	k.calls++
	if k.err != nil {
		return nil, k.err
	}
	if o.ResourceVersion == "0" {
		return nil, fmt.Errorf("a list that may be of any age was asked for")
	}
	k.lists++
	list := k.many.DeepCopyObject()
	var items []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		items = append(items, k.objects[name].DeepCopyObject())
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	m, _ := meta.ListAccessor(list)
	m.SetResourceVersion(strconv.Itoa(k.api.version))
	return list, nil
}

func (k *fakeKind) watch(o metav1.ListOptions) (watch.Interface, error) {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	k.calls++
	if k.err != nil {
		return nil, k.err
	}
	w := watch.NewRaceFreeFake()
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		if k.streamErr != nil {
			return nil, k.streamErr
		}
		k.lists++
		for _, name := range slices.Sorted(maps.Keys(k.objects)) {
			w.Add(k.objects[name].DeepCopyObject())
		}
		w.Action(watch.Bookmark, k.bookmark())
	} else if err := k.replay(w, o.ResourceVersion); err != nil {
		return nil, err
	}
	k.watchers = append(k.watchers, w)
	return w, nil
}

func (k *fakeKind) bookmark() runtime.Object {
	mark := k.one.DeepCopyObject()
	m, _ := meta.Accessor(mark)
	m.SetResourceVersion(strconv.Itoa(k.api.version))
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return mark
}

// replay sends what has happened since a version.
func (k *fakeKind) replay(w *watch.RaceFreeFakeWatcher, since string) error {
	version, err := strconv.Atoi(since)
	if err != nil {
		return err
	}
	if version < k.since {
		return apierrors.NewResourceExpired("too old")
	}
	for _, e := range k.log {
		m, _ := meta.Accessor(e.Object)
		if at, _ := strconv.Atoi(m.GetResourceVersion()); at > version {
			w.Action(e.Type, e.Object.DeepCopyObject())
		}
	}
	return nil
}

// recorder is a Handler that remembers, and says what is needed.
type recorder struct {
	mu    sync.Mutex
	nodes []string
	gates int
}

func (r *recorder) NodeChanged(name string, _ gate.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = append(r.nodes, name)
}

func (r *recorder) GatesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates++
}

// take returns the names that were told since it was last called, sorted and
// without duplicates, and how often the gates were said to have changed.
func (r *recorder) take() ([]string, int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	names, gates := r.nodes, r.gates
	r.nodes, r.gates = nil, 0
	slices.Sort(names)
	return slices.Compact(names), gates
}

// testFeed is a feed of a fake API.
type testFeed struct {
	*Feed
	api  *fakeAPI
	told *recorder
}

// runFeed runs a test with a feed that observes a fake API, in a bubble with a
// time of its own. When it returns the feed has been stopped; a goroutine that
// it left behind fails the test.
func runFeed(t *testing.T, prepare func(*fakeAPI), test func(*testing.T, *testFeed)) {
	synctest.Test(t, func(t *testing.T) {
		api, told := newFakeAPI(), &recorder{}
		if prepare != nil {
			prepare(api)
		}
		f := newFeed(api.sources(), Options{Handler: told, Log: testr.New(t)})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		test(t, &testFeed{Feed: f, api: api, told: told})
		begin := time.Now()
		cancel()
		running.Wait()
		if took := time.Since(begin); took > 0 {
			t.Errorf("stopping took %s", took)
		}
	})
}

func testNode(name string, uid types.UID, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: uid, CreationTimestamp: metav1.Unix(1700000000, 0), Labels: map[string]string{corev1.LabelHostname: name},
	}}
	n.Status.NodeInfo.BootID = "boot"
	setReady(n, corev1.ConditionTrue, "")
	for _, c := range change {
		c(n)
	}
	return n
}

func setReady(n *corev1.Node, status corev1.ConditionStatus, message string) {
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Message: message,
		LastHeartbeatTime: metav1.Unix(1700000000, 0), LastTransitionTime: metav1.Unix(1700000000, 0),
	}}
}

func testGate(name string) *v1alpha1.NodeGate {
	return &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Add(-30 * time.Minute)),
	}}
}

func testPod(name string, uid types.UID, node string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, CreationTimestamp: metav1.Unix(1700000000, 0)}}
	p.Spec.NodeName = node
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Unix(1700000100, 0)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", ContainerID: "2"}, {Name: "a", ContainerID: "1"}}
	return p
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Group: "g", Resource: "r"}, "", fmt.Errorf("not allowed"))
	errNotFound  = apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{}, "", "", 0, true)
)

// pass lets time pass in a synctest bubble, where it takes none.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
