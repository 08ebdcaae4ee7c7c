// SPDX-License-Identifier: Apache-2.0

package jsonclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Metadata contains the metadata of objects that collections and their users need.
type Metadata struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// DeletionTimestamp is empty unless the deletion of the object has been requested.
	DeletionTimestamp string `json:"deletionTimestamp"`
}

// GetNamespace implements Object.
func (m *Metadata) GetNamespace() string { return m.Namespace }

// GetName implements Object.
func (m *Metadata) GetName() string { return m.Name }

// GetResourceVersion implements Object.
func (m *Metadata) GetResourceVersion() string { return m.ResourceVersion }

// Object is what objects are decoded into: a type with Metadata.
type Object interface {
	GetNamespace() string
	GetName() string
	GetResourceVersion() string
}

// Collection has the objects at a path, and keeps them up to date.
type Collection[O any, P interface {
	*O
	Object
}] struct {
	Client *Client
	// Path is that of the resource, such as /api/v1/pods, and FieldSelector selects objects.
	Path, FieldSelector string
	// Changed is called after each change, and when everything has been read.
	Changed func()
	Log     *slog.Logger

	mu      sync.Mutex
	objects map[string]P
	synced  bool
	// Only the goroutine of Run uses these. version is the resource version of the newest change,
	// from which a watch continues. It is empty if everything must be read again. heard is when
	// anything was last received, and failed whether the last request has failed.
	version string
	heard   time.Time
	failed  bool
}

// These times are those of internal/kube/reflector, which would add too much to the node agent's
// memory: change them together.
const (
	// silentAfter is the time after which a watch that has delivered nothing, not even a
	// bookmark, is not trusted: API servers send a bookmark about once a minute.
	silentAfter = 3 * time.Minute
	// The delay between requests that end grows from retryFirst to retryMax. It is retryFirst
	// again after a watch that lasted at least steadyFor.
	retryFirst, retryMax = 200 * time.Millisecond, 5 * time.Second
	steadyFor            = time.Minute
)

// errSilent is the error of a request that has delivered nothing for silentAfter.
var errSilent = fmt.Errorf("nothing was received for %s", silentAfter)

// Synced reports whether everything has been read.
func (c *Collection[O, P]) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

// All returns all objects, in any order. They must not be changed.
func (c *Collection[O, P]) All() []P {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]P, 0, len(c.objects))
	for _, o := range c.objects {
		all = append(all, o)
	}
	return all
}

// Run keeps the collection up to date until the context ends.
func (c *Collection[O, P]) Run(ctx context.Context) {
	first := wait.Backoff{Duration: retryFirst, Cap: retryMax, Factor: 2, Steps: 10, Jitter: 0.5}
	next := first
	for {
		began := time.Now()
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		c.report(err)
		if time.Since(began) >= steadyFor {
			next = first
		}
		select {
		case <-time.After(next.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// follow reads everything, unless a watch can continue, and watches until a request ends. A
// watch that is silent, or whose answer shows that its resource version is of no use, does not
// continue. Successive watches that end without an event are as silent as one that does not end.
func (c *Collection[O, P]) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	left := silentAfter
	if c.version != "" {
		left -= time.Since(c.heard)
	}
	silence := time.AfterFunc(left, func() { cancel(errSilent) })
	defer silence.Stop()
	received := func() {
		c.heard = time.Now()
		silence.Reset(silentAfter)
	}
	if c.version == "" {
		if err := c.list(ctx, received); err != nil {
			return fmt.Errorf("listing: %w", errors.Join(err, context.Cause(ctx)))
		}
		received()
	}
	err := c.watch(ctx, received)
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	if errors.Is(err, errSilent) || useless(err) {
		c.version = ""
	}
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	return nil
}

// useless reports whether a watch that ended with an error must not continue from its resource
// version.
func useless(err error) bool {
	var status *StatusError
	return errors.Is(err, errEvent) || errors.As(err, &status) && (status.Code == http.StatusGone || status.Code == http.StatusBadRequest)
}

// report logs the first of several failures, and the first success after them.
func (c *Collection[O, P]) report(err error) {
	switch failed := err != nil; {
	case failed && !c.failed:
		c.Log.Error("cannot observe, retrying", "path", c.Path, "error", err.Error())
	case !failed && c.failed:
		c.Log.Info("observing again", "path", c.Path)
	}
	c.failed = err != nil
}

// list replaces all objects by the newest state. Without a resource version in the request, it
// is not that of a watch cache that has stopped.
func (c *Collection[O, P]) list(ctx context.Context, received func()) error {
	body, err := c.Client.do(ctx, http.MethodGet, c.Path, c.query(url.Values{}), "", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	objects := make(map[string]P)
	version, err := eachItem(body, func(item json.RawMessage) error {
		received()
		o, err := c.decode(item)
		if err == nil {
			objects[key(o)] = o
		}
		return err
	})
	if err != nil {
		return err
	}
	c.change(func() { c.objects, c.synced = objects, true })
	c.version = version
	return nil
}

func (c *Collection[O, P]) query(q url.Values) url.Values {
	if c.FieldSelector != "" {
		q.Set("fieldSelector", c.FieldSelector)
	}
	return q
}

// errEvent is the error of a watch that has delivered an error or an event that cannot be
// understood.
var errEvent = errors.New("the watch cannot continue")

// event is an event of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch applies changes until the watch ends. The API server ends each watch after some time.
func (c *Collection[O, P]) watch(ctx context.Context, received func()) error {
	query := c.query(url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {c.version}})
	body, err := c.Client.do(ctx, http.MethodGet, c.Path, query, "", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	c.report(nil)
	d := json.NewDecoder(body)
	for {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		received()
		if err := c.apply(e); err != nil {
			return errors.Join(errEvent, err)
		}
	}
}

// apply applies an event.
func (c *Collection[O, P]) apply(e event) error {
	if e.Type == "ERROR" {
		return parseStatus(0, e.Object)
	}
	o, err := c.decode(e.Object)
	if err != nil {
		return err
	}
	switch e.Type {
	case "ADDED", "MODIFIED":
		c.change(func() { c.objects[key(o)] = o })
	case "DELETED":
		c.change(func() { delete(c.objects, key(o)) })
	case "BOOKMARK":
	default:
		return fmt.Errorf("unknown type of event %q", e.Type)
	}
	c.version = o.GetResourceVersion()
	return nil
}

func (c *Collection[O, P]) decode(raw json.RawMessage) (P, error) {
	o := P(new(O))
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("decoding an object: %w", err)
	}
	return o, nil
}

func (c *Collection[O, P]) change(apply func()) {
	c.mu.Lock()
	apply()
	c.mu.Unlock()
	c.Changed()
}

func key(o Object) string { return o.GetNamespace() + "/" + o.GetName() }
