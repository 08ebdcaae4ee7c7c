// SPDX-License-Identifier: Apache-2.0

// Package gatefile reads NodeGates from the files of a directory, validates them like the
// API server, and follows changes of the files.
//
// The directory is a unit: while a file is invalid, or the directory is empty or does not
// exist, the gates of the last valid state stay in force. During that time the gates are
// reported as incomplete, so that no gate is opened because its declaration is missing.
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
	"github.com/nodegate/nodegate/internal/kube/gates"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// A change is applied when the content has been the same for settleFor: a file may be
// partially written, and the part may be valid and contain fewer gates. The files of a
// mounted ConfigMap change atomically; those that an editor writes do not. The directory is
// also read periodically, in case the operating system does not report a change.
const (
	settleFor   = 500 * time.Millisecond
	rereadAfter = 20 * time.Second
	retryAfter  = 2 * time.Second
)

// Directory is a source of gates that reads them from the files of a directory.
type Directory struct {
	path string
	log  logr.Logger

	current atomic.Pointer[view]

	// Only Run uses the following fields: the fingerprint of the last snapshot, the time
	// since which it has been the same, and whether it has been applied.
	fingerprint [sha256.Size]byte
	since       time.Time
	applied     bool
	// reads is the number of valid snapshots that were applied.
	reads int64
}

var _ gates.Source = (*Directory)(nil)

// view is the current set of gates. It is immutable.
type view struct {
	gates []*v1alpha1.NodeGate
	// read is true after a valid snapshot has been applied.
	read bool
	// err is the reason why the gates may be incomplete. It is also nil before the first read.
	err error
}

// New returns a source for a directory. Run starts reading it.
func New(path string, log logr.Logger) *Directory {
	d := &Directory{path: path, log: log.WithValues("directory", path)}
	d.current.Store(&view{})
	return d
}

// Name implements gates.Source.
func (*Directory) Name() string { return v1alpha1.SourceFiles }

// Gates implements gates.Source.
func (d *Directory) Gates() ([]*v1alpha1.NodeGate, bool) {
	v := d.current.Load()
	return v.gates, v.read && v.err == nil
}

// Deleted implements gates.Source.
func (*Directory) Deleted() map[string]bool { return nil }

// Err implements gates.Source.
func (d *Directory) Err() error {
	v := d.current.Load()
	if v.err == nil && !v.read {
		return fmt.Errorf("the gates in %s have not been read yet", d.path)
	}
	return v.err
}

// Status implements gates.Source.
func (d *Directory) Status() reflector.Status {
	v := d.current.Load()
	return reflector.Status{Name: gates.GatesName + " in " + d.path, Synced: v.read, Live: v.read && v.err == nil, Err: v.err}
}

// CatchUp implements gates.Source. The files are read whenever they may have changed.
func (*Directory) CatchUp(context.Context, func(*v1alpha1.NodeGate) bool) error { return nil }

// Run implements gates.Source.
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
		case err := <-w.errors: // for example an overflow: read the directory
			d.log.V(1).Info("watching failed", "error", err.Error())
		}
		w.renew(d.path) // before reading, so that no change is missed
		wait, updated := d.observe(readDirectory(d.path), time.Now())
		if updated {
			changed()
		}
		timer.Reset(wait)
	}
}

// observe processes a snapshot. It returns the duration after which to read the directory
// again, and whether the gates or their completeness changed.
func (d *Directory) observe(s snapshot, now time.Time) (wait time.Duration, updated bool) {
	if found := s.fingerprint(); found != d.fingerprint || d.since.IsZero() {
		d.fingerprint, d.since, d.applied = found, now, false
	}
	if rest := settleFor - now.Sub(d.since); !d.applied && rest > 0 {
		return rest, false
	}
	if !d.applied {
		d.applied = true
		updated = d.apply(s, now)
	}
	if s.err != nil {
		return retryAfter, updated
	}
	return rereadAfter, updated
}

// apply replaces the current gates by those of a snapshot, if it is valid.
func (d *Directory) apply(s snapshot, now time.Time) (updated bool) {
	before := d.current.Load()
	gates, err := s.gates()
	if err != nil {
		err = fmt.Errorf("reading gates in %s: %w", d.path, err)
		d.current.Store(&view{gates: before.gates, read: before.read, err: err})
		d.log.Error(err, "gates cannot be read, keeping the previous ones and what they closed", "gates", len(before.gates))
		return before.read && before.err == nil
	}
	d.reads++
	added, changed, removed := d.identify(before, gates, now)
	d.current.Store(&view{gates: gates, read: true})
	if updated = !before.read || before.err != nil || len(added)+len(changed)+len(removed) > 0; updated {
		d.log.Info("gates read", "gates", len(gates), "added", added, "changed", changed, "removed", removed)
	}
	return updated
}

// identify sets the metadata that the API server would set: a UID, a generation that
// changes with the spec, and the creation time. Gates of the first read may have existed for
// a long time and have no creation time. Later gates are new, so that existing nodes are not
// their members. identify returns the names of the gates that changed.
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
				created = metav1.NewTime(now.Truncate(time.Second)) // the resolution of a Node's creation time
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
