// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// fakeAPI is a fake API server for feeds.
type fakeAPI struct {
	mu      sync.Mutex
	version int
	kinds   map[string]*fakeKind
	// definition and definitionErr are what reading the definition returns.
	definition    *metav1.PartialObjectMetadata
	definitionErr error
	// definitionReads counts reads of the definition.
	definitionReads int
	// onDefinition, unless nil, is called while the definition is being read.
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
	// err fails all requests, watchErr all watches, streamErr those that stream the initial list.
	err, watchErr, streamErr error
	// since is the oldest version from which a watch can be resumed.
	since int
	// muted makes watches stay open and deliver nothing.
	muted bool
	// onRead, unless nil, is called before everything is read.
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
	return a.kind("gates", &gateclient.StoredGate{}, &gateclient.StoredGates{})
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

func (a *fakeAPI) sharedSlices(driver string) *fakeKind {
	return a.kind("resourceslices/shared/"+driver, &resourcev1.ResourceSlice{}, &resourcev1.ResourceSliceList{})
}

func (a *fakeAPI) rules() *fakeKind {
	return a.kind("devicetaintrules", &unstructured.Unstructured{}, &unstructured.UnstructuredList{})
}

func (a *fakeAPI) objects(of gate.ObjectSource) *fakeKind {
	return a.kind("objects/"+of.String(), &unstructured.Unstructured{}, &unstructured.UnstructuredList{})
}

func (a *fakeAPI) sources() sources {
	return sources{
		nodes:      a.nodes().listWatch(),
		gates:      a.gates().listWatch(),
		daemonSets: func(namespace string) *cache.ListWatch { return a.daemonSets(namespace).listWatch() },
		pods:       func(q gate.PodQuery) *cache.ListWatch { return a.pods(q).listWatch() },
		csiNodes:   a.csiNodes().listWatch(),
		objects:    func(of gate.ObjectSource, _ bool) *cache.ListWatch { return a.objects(of).listWatch() },
		resourceSlices: func(of SliceSource) *cache.ListWatch {
			if of.Shared {
				return a.sharedSlices(of.Driver).listWatch()
			}
			return a.slices(of.Driver).listWatch()
		},
		deviceTaintRules: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return a.rules().listWatch().ListWithContext(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return a.rules().listWatch().WatchWithContext(ctx, o)
			},
		},
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

// set changes the state of the API.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// Put creates or updates an object, and returns the stored object.
func (k *fakeKind) Put(o metav1.Object) runtime.Object {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	if ng, ok := o.(*v1alpha1.NodeGate); ok {
		o = &gateclient.StoredGate{NodeGate: *ng}
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
	k.notify(t, o)
}

func (k *fakeKind) notify(t watch.EventType, o runtime.Object) {
	for _, w := range k.watchers {
		if !w.IsStopped() && !k.muted {
			w.Action(t, o.DeepCopyObject())
		}
	}
}

// bookmarks sends a bookmark on each watch once a minute, as API servers do.
func (a *fakeAPI) bookmarks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
		a.mu.Lock()
		for _, k := range a.kinds {
			k.notify(watch.Bookmark, k.bookmark(false))
		}
		a.mu.Unlock()
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

// restart ends all watches and makes it impossible to resume them.
func (k *fakeKind) restart() {
	k.api.set(func() { k.since, k.log = k.api.version+1, nil })
	k.hangUp()
}

// expire ends all watches with an error because they have fallen too far behind.
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
		return nil, fmt.Errorf("the request would accept a list of any age")
	}
	k.lists++
	list := k.many.DeepCopyObject()
	m, _ := meta.ListAccessor(list)
	m.SetResourceVersion(strconv.Itoa(k.api.version))
	names := slices.Sorted(maps.Keys(k.objects))
	from, _ := slices.BinarySearch(names, o.Continue)
	names = names[from:]
	if limit := int(o.Limit); limit > 0 && len(names) > limit {
		m.SetContinue(names[limit])
		names = names[:limit]
	}
	var items []runtime.Object
	for _, name := range names {
		items = append(items, k.objects[name].DeepCopyObject())
	}
	return list, meta.SetList(list, items)
}

func (k *fakeKind) watch(o metav1.ListOptions) (watch.Interface, error) {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	k.calls++
	if err := cmp.Or(k.err, k.watchErr); err != nil {
		return nil, err
	}
	w := watch.NewRaceFreeFake()
	if k.muted {
		k.watchers = append(k.watchers, w)
		return w, nil
	}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		if k.streamErr != nil {
			return nil, k.streamErr
		}
		k.lists++
		for _, name := range slices.Sorted(maps.Keys(k.objects)) {
			w.Add(k.objects[name].DeepCopyObject())
		}
		w.Action(watch.Bookmark, k.bookmark(true))
	} else if err := k.replay(w, o.ResourceVersion); err != nil {
		return nil, err
	}
	k.watchers = append(k.watchers, w)
	return w, nil
}

func (k *fakeKind) bookmark(initial bool) runtime.Object {
	mark := k.one.DeepCopyObject()
	m, _ := meta.Accessor(mark)
	m.SetResourceVersion(strconv.Itoa(k.api.version))
	if initial {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return mark
}

// replay sends the events after a version.
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

// recorder is a Handler that records calls.
type recorder struct {
	mu    sync.Mutex
	nodes []string
	gates int
	// onChange, unless nil, is called in each call, as a decision would be made then.
	onChange func()
}

func (r *recorder) NodeChanged(name string, _ gate.Change) {
	r.record(func() { r.nodes = append(r.nodes, name) })
}

func (r *recorder) GatesChanged() { r.record(func() { r.gates++ }) }

func (r *recorder) record(call func()) {
	r.mu.Lock()
	call()
	on := r.onChange
	r.mu.Unlock()
	if on != nil {
		on()
	}
}

// take returns the names of nodes announced since it was last called, sorted and without
// duplicates, and how often GatesChanged was called.
func (r *recorder) take() ([]string, int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	names, gates := r.nodes, r.gates
	r.nodes, r.gates = nil, 0
	slices.Sort(names)
	return slices.Compact(names), gates
}

// testFeed is a Feed of a fake API.
type testFeed struct {
	*Feed
	api     *fakeAPI
	handler *recorder
	// silences counts silent watches, logged log lines.
	silences, logged *atomic.Int32
}

// runFeed runs a test, in a synctest bubble, with a Feed that observes a fake API. The
// Feed is stopped afterwards; a goroutine that it leaves behind fails the test.
func runFeed(t *testing.T, prepare func(*fakeAPI), test func(*testing.T, *testFeed)) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newFakeAPI(), &recorder{}
		if prepare != nil {
			prepare(api)
		}
		silences, logged := &atomic.Int32{}, &atomic.Int32{}
		log := funcr.New(func(_, line string) {
			logged.Add(1)
			t.Log(line)
		}, funcr.Options{})
		f := newFeed(api.sources(), Options{
			Handler: handler, Log: log, Silenced: func(reflector.Status) { silences.Add(1) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		running.Go(func() { api.bookmarks(ctx) })
		synctest.Wait()
		test(t, &testFeed{Feed: f, api: api, handler: handler, silences: silences, logged: logged})
		begin := time.Now()
		cancel()
		running.Wait()
		if took := time.Since(begin); took > 0 {
			t.Errorf("stopping took %s", took)
		}
	})
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Group: "g", Resource: "r"}, "", fmt.Errorf("not allowed"))
	errNotFound  = apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{}, "", "", 0, true)
)
