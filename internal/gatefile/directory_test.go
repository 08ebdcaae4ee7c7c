// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// filesOf returns a snapshot of files with these alternating names and contents.
func filesOf(files ...string) (s snapshot) {
	for i := 0; i < len(files); i += 2 {
		s.files = append(s.files, file{name: files[i], content: []byte(files[i+1])})
	}
	return s
}

var gone = snapshot{err: errors.New("no such directory")}

// reader observes given snapshots, with its own clock.
type reader struct {
	*testing.T
	*Directory
	now time.Time
	log []string
}

func newReader(t *testing.T) *reader {
	r := &reader{T: t, now: epoch}
	r.Directory = New("/gates", funcr.New(func(_, args string) { r.log = append(r.log, args) }, funcr.Options{}))
	return r
}

// finds observes a snapshot, and observes it again after it has settled. It returns whether
// anything changed.
func (r *reader) finds(s snapshot) bool {
	r.Helper()
	wait, updated := r.observe(s, r.now)
	if r.applied {
		return updated
	}
	if updated || wait <= 0 || wait > settleFor {
		r.Errorf("before it settled: changed %t, read again after %s", updated, wait)
	}
	r.now = r.now.Add(wait)
	_, updated = r.observe(s, r.now)
	r.now = r.now.Add(time.Minute)
	return updated
}

// expect checks the current gates.
func (r *reader) expect(when, names string, complete bool) {
	r.Helper()
	gates, all := r.Gates()
	got := nameList(gates)
	if got != names || all != complete {
		r.Errorf("%s: gates %q, complete %t; want %q, %t", when, got, all, names, complete)
	}
	if status := r.Status(); (r.Err() == nil) != complete || status.Live != complete {
		r.Errorf("%s: error %v, status %+v", when, r.Err(), status)
	}
}

// Alerts about gates and about other resources are distinguished by the resource.
func TestResourceOfTheFeed(t *testing.T) {
	if got := newReader(t).Status().Resource(); got != v1alpha1.Resource.Resource {
		t.Errorf("the feed observes %q, want the name of the resource, as in the API", got)
	}
}

var (
	a, b  = one("a", someTaint), one("b", someTaint)
	ab    = filesOf("a.yaml", a, "b.yaml", b)
	onlyA = filesOf("a.yaml", a)
	bad   = filesOf("a.yaml", a, "b.yaml", "?")
	none  = filesOf("a.yaml", noGates)
)

func TestDirectoryIsOneUnit(t *testing.T) {
	for name, bad := range map[string]snapshot{"a bad file": bad, "no directory": gone, "an empty one": readDirectory(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t)
			r.expect("at first", "", false)
			if r.finds(bad) || r.Status().Synced {
				t.Error("an invalid directory counts as read")
			}
			r.expect("wrong at first", "", false)
			if !r.finds(ab) || !r.Status().Synced {
				t.Error("the first gates were not reported")
			}
			r.expect("read", "a b", true)
			if !r.finds(bad) || !r.Status().Synced {
				t.Error("incomplete gates were not reported")
			}
			r.expect("wrong", "a b", false)
			if !r.finds(onlyA) {
				t.Error("complete gates were not reported")
			}
			r.expect("right again", "a", true)
			if r.finds(onlyA) {
				t.Error("an unchanged directory was reported")
			}
			if !r.finds(none) {
				t.Error("an empty set of gates was not reported")
			}
			r.expect("no gate", "", true)
			if len(r.log) != 5 {
				t.Errorf("%d lines for five changes:\n%s", len(r.log), strings.Join(r.log, "\n"))
			}
		})
	}
}

// A state that lasts for a moment only, such as while files are being written, is neither
// applied nor reported.
func TestUnsettledSnapshotIsIgnored(t *testing.T) {
	r := newReader(t)
	r.finds(ab)
	for _, s := range []snapshot{onlyA, gone, none, bad, onlyA, none} {
		if _, updated := r.observe(s, r.now); updated {
			t.Error("an unsettled snapshot was applied")
		}
		r.now = r.now.Add(settleFor - time.Millisecond)
	}
	r.expect("restless", "a b", true)
	r.finds(ab)
	r.expect("as before", "a b", true)
	if len(r.log) != 1 {
		t.Errorf("log: %v", r.log)
	}
}

func TestIdentities(t *testing.T) {
	r := newReader(t)
	get := func(name string) *v1alpha1.NodeGate {
		t.Helper()
		gates, _ := r.Gates()
		for _, g := range gates {
			if g.Name == name {
				return g
			}
		}
		t.Fatalf("gate %s not found", name)
		return nil
	}
	r.finds(onlyA)
	first := get("a")
	if !first.CreationTimestamp.IsZero() {
		t.Errorf("the first gate has the creation time %s", first.CreationTimestamp)
	}
	r.finds(bad)
	added := r.now.Add(settleFor)
	r.finds(filesOf("x.yaml", "# moved, and no more than that\n"+a, "y.yaml", b))
	if get("a") != first {
		t.Error("an unchanged gate was replaced")
	}
	if late := get("b"); !late.CreationTimestamp.Time.Equal(added.Truncate(time.Second)) || late.UID == first.UID {
		t.Errorf("the added gate is %+v", late.ObjectMeta)
	}
	r.finds(filesOf("x.yaml", one("a", "{key: example.com/other, effect: NoSchedule}")))
	edited := get("a")
	if edited.Generation == first.Generation || edited.UID != first.UID || !edited.CreationTimestamp.IsZero() {
		t.Errorf("the edited gate is %+v, before: %+v", edited.ObjectMeta, first.ObjectMeta)
	}
	r.finds(none)
	r.finds(onlyA)
	if again := get("a"); again.Generation <= edited.Generation || again.CreationTimestamp.IsZero() {
		t.Errorf("the gate that was removed and added again is %+v", again.ObjectMeta)
	}
}

// run runs a Directory until the test ends.
func run(t *testing.T, path string) *Directory {
	t.Helper()
	d := New(path, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, func() {})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return d
}

// becomes waits until the current gates are these.
func becomes(t *testing.T, d *Directory, names string, complete bool) {
	t.Helper()
	awaittest.Until(t, "the gates of the directory", func(context.Context) error {
		gates, all := d.Gates()
		if got := nameList(gates); got != names || all != complete {
			return fmt.Errorf("gates %q, error %v; want %q, complete: %t", got, d.Err(), names, complete)
		}
		return nil
	})
}

func nameList(gates []*v1alpha1.NodeGate) string {
	var names []string
	for _, g := range gates {
		names = append(names, g.Name)
	}
	return strings.Join(names, " ")
}

// configMap updates files like the kubelet updates a mounted ConfigMap: it creates a new
// directory, and replaces the old one by a rename.
type configMap struct {
	t        *testing.T
	dir      string
	versions int
}

func (c *configMap) update(files map[string]string) {
	c.t.Helper()
	c.versions++
	version := fmt.Sprintf("..v%d", c.versions)
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(c.dir, version), 0o700))
	for name, content := range files {
		write(c.t, filepath.Join(c.dir, version), name, content)
	}
	must(os.Symlink(version, filepath.Join(c.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name)); !os.IsExist(err) {
			must(err)
		}
	}
	links, err := filepath.Glob(filepath.Join(c.dir, "[^.]*"))
	must(err)
	for _, link := range links {
		if _, there := files[filepath.Base(link)]; !there {
			must(os.Remove(link))
		}
	}
	must(os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("..v%d", c.versions-1))))
}

func TestMountedConfigMap(t *testing.T) {
	c := &configMap{t: t, dir: t.TempDir()}
	c.update(map[string]string{"a.yaml": a, "b.yaml": b})
	d := run(t, c.dir)
	becomes(t, d, "a b", true)
	c.update(map[string]string{"a.yaml": a})
	becomes(t, d, "a", true)
	c.update(map[string]string{"a.yaml": "?"})
	becomes(t, d, "a", false)
	c.update(map[string]string{"b.yaml": a + "---\n" + b})
	becomes(t, d, "a b", true)
	c.update(nil)
	becomes(t, d, "a b", false)
	c.update(map[string]string{"b.yaml": noGates})
	becomes(t, d, "", true)
}

// A directory is created, deleted, and replaced by another one.
func TestDirectoryComesAndGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gates")
	d := run(t, path)
	for _, files := range []map[string]string{{"x.yaml": a}, {"x.yaml": a, "y.yaml": b}} {
		names := strings.Repeat("a b", len(files))[:2*len(files)-1]
		if err := os.Rename(directory(t, files), path); err != nil {
			t.Fatal(err)
		}
		becomes(t, d, names, true)
		write(t, path, "z.yaml", one("c", someTaint))
		becomes(t, d, names+" c", true)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		becomes(t, d, names+" c", false)
	}
}
