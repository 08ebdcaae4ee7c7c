// SPDX-License-Identifier: Apache-2.0

// Package gatefile reads NodeGates from the files of a directory, by the same
// rules as the API server, and keeps reading them.
//
// The directory is one unit, all or nothing: while anything in it is wrong, or
// it is empty or gone, the gates stay what they were when it was last right,
// and they are not complete, so that nothing that they closed is opened because
// a gate is missing.
package gatefile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
)

// What was found counts once it has been the same for settleFor: files may be
// in the middle of being written, and half a file may be a valid one with fewer
// gates. A ConfigMap's files change all at once; an editor's do not. Where the
// operating system tells of no change, or not of this one, the directory is
// looked at again anyway.
const (
	settleFor   = 500 * time.Millisecond
	rereadAfter = 20 * time.Second
	retryAfter  = 2 * time.Second
)

// Directory is a source of gates.
type Directory struct {
	path string
	log  logr.Logger

	current atomic.Pointer[view]

	// The rest belongs to Run: what was found last and since when, and whether it
	// has been taken over.
	seen  [sha256.Size]byte
	since time.Time
	taken bool
	// reads counts the times that all was right.
	reads int64
}

var _ cluster.GateSource = (*Directory)(nil)

// view is what is known at one moment. It is immutable.
type view struct {
	gates []*v1alpha1.NodeGate
	// read is true once all was right.
	read bool
	// err is why the gates may not be all. It is nil too before anything is known.
	err error
}

// New returns the directory as a source. Nothing is read before Run.
func New(path string, log logr.Logger) *Directory {
	d := &Directory{path: path, log: log.WithValues("directory", path)}
	d.current.Store(&view{})
	return d
}

// Name implements cluster.GateSource.
func (*Directory) Name() string { return v1alpha1.SourceFiles }

// Gates implements cluster.GateSource.
func (d *Directory) Gates() ([]*v1alpha1.NodeGate, bool) {
	v := d.current.Load()
	return v.gates, v.read && v.err == nil
}

// Deleted implements cluster.GateSource.
func (*Directory) Deleted() map[string]bool { return nil }

// Err implements cluster.GateSource.
func (d *Directory) Err() error {
	v := d.current.Load()
	if v.err == nil && !v.read {
		return fmt.Errorf("the gates in %s have not been read yet", d.path)
	}
	return v.err
}

// Status implements cluster.GateSource.
func (d *Directory) Status() cluster.FeedStatus {
	v := d.current.Load()
	return cluster.FeedStatus{Name: "gates in " + d.path, Synced: v.read, Live: v.read && v.err == nil, Err: v.err}
}

// Run implements cluster.GateSource.
func (d *Directory) Run(ctx context.Context, changed func()) {
	w := d.watch()
	defer w.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.events:
		case err := <-w.errors: // an overflow, for example: look
			d.log.V(1).Info("watching failed", "error", err.Error())
		}
		w.renew(d.path) // before looking, so that nothing is missed in between
		wait, news := d.look(lookAt(d.path), time.Now())
		if news {
			changed()
		}
		timer.Reset(wait)
	}
}

// look takes in what was found. It returns after how long to look again, and
// whether the gates or their completeness have changed.
func (d *Directory) look(l look, now time.Time) (wait time.Duration, news bool) {
	if found := l.fingerprint(); found != d.seen || d.since.IsZero() {
		d.seen, d.since, d.taken = found, now, false
	}
	if rest := settleFor - now.Sub(d.since); !d.taken && rest > 0 {
		return rest, false
	}
	if !d.taken {
		d.taken = true
		news = d.take(l, now)
	}
	if l.err != nil {
		return retryAfter, news
	}
	return rereadAfter, news
}

// take takes over what was found.
func (d *Directory) take(l look, now time.Time) (news bool) {
	before := d.current.Load()
	gates, err := l.gates()
	if err != nil {
		err = fmt.Errorf("reading gates in %s: %w", d.path, err)
		d.current.Store(&view{gates: before.gates, read: before.read, err: err})
		d.log.Error(err, "gates cannot be read, keeping those of before and what they closed", "gates", len(before.gates))
		return before.read && before.err == nil
	}
	d.reads++
	added, changed, removed := d.identify(before, gates, now)
	d.current.Store(&view{gates: gates, read: true})
	if news = !before.read || before.err != nil || len(added)+len(changed)+len(removed) > 0; news {
		d.log.Info("gates read", "gates", len(gates), "added", added, "changed", changed, "removed", removed)
	}
	return news
}

// identify gives each gate what the API server would: an identity, a generation
// that changes with its spec, and when it was created. Gates that are there at
// first may have been there for long. Those that come later are new, so that
// nodes of before are none of theirs. It says what has changed since before.
func (d *Directory) identify(before *view, gates []*v1alpha1.NodeGate, now time.Time) (added, changed, removed []string) {
	old := make(map[string]*v1alpha1.NodeGate, len(before.gates))
	for _, g := range before.gates {
		old[g.Name] = g
	}
	for i, g := range gates {
		was, known := old[g.Name]
		delete(old, g.Name)
		if known && apiequality.Semantic.DeepEqual(was.Spec, g.Spec) {
			gates[i] = was
			continue
		}
		created := g.CreationTimestamp
		switch {
		case known:
			created, changed = was.CreationTimestamp, append(changed, g.Name)
		default:
			added = append(added, g.Name)
			if created.IsZero() && before.read {
				created = metav1.NewTime(now.Truncate(time.Second)) // as exact as a Node's
			}
		}
		g.ObjectMeta = metav1.ObjectMeta{
			Name: g.Name, UID: types.UID("file/" + g.Name), Generation: d.reads, CreationTimestamp: created,
		}
	}
	for _, g := range before.gates {
		if _, gone := old[g.Name]; gone {
			removed = append(removed, g.Name)
		}
	}
	return added, changed, removed
}
