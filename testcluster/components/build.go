// SPDX-License-Identifier: Apache-2.0

package components

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nodegate/nodegate/testcluster/filelock"
	"github.com/nodegate/nodegate/testcluster/progress"
)

// Options specifies what Build provides.
type Options struct {
	// KubernetesVersion is a minor version such as "1.37": one of Versions, or
	// empty for DefaultVersion. Etcd, KWOK and kubectl are the same for all.
	KubernetesVersion string

	// Components are the programs to provide.
	Components []Component

	// Sources are built after the components. Packages that both need are
	// compiled once.
	Sources []Source

	// Progress receives Build's messages; nil discards them.
	Progress io.Writer
}

// A Source specifies packages on this machine, and how the go command builds
// them.
type Source struct {
	Name     string   // for messages
	Dir      string   // of their module
	Flags    []string // of go build and go list, such as -race
	Output   string   // where programs are written (go build's -o); empty: nowhere
	Packages []string // patterns
	// Tests compiles the packages' tests with them, and links nothing. Build does
	// not fail if they do not compile, because go test reports that.
	Tests bool
}

// Build returns the paths of the components, and builds those that are neither on
// this machine (see installed) nor in the cache. It always builds the sources. No
// package is compiled twice: the components are built with the flags of the environment
// (GOFLAGS) and share the versions of common modules with nodegate, which a test
// verifies. Processes that build at the same time wait for each other.
func Build(ctx context.Context, opts Options) (map[Component]string, error) {
	if opts.KubernetesVersion == "" {
		opts.KubernetesVersion = DefaultVersion()
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	p := progress.New(opts.Progress)
	defer p.Clear()
	paths, err := installed(ctx, &opts, p)
	if err != nil {
		return nil, err
	}
	root, err := cacheRoot()
	if err != nil {
		return nil, err
	}
	sets, err := opts.cached(root, paths)
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, sets: sets, sources: opts.Sources, progress: p}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return paths, nil
}

func (o *Options) validate() error {
	for _, c := range o.Components {
		if known := slices.Concat(ControlPlane(), Node(), neighbours()); !slices.Contains(known, c) {
			return fmt.Errorf("unknown component %q: must be one of %s", c, join(known))
		}
	}
	_, err := moduleOf(o.KubernetesVersion)
	return err
}

// A set contains the programs that are built from one module.
type set struct {
	module   *module
	dir      string // where they are kept
	programs []Component
}

// cached adds the cache paths of the components that are not installed to paths,
// and returns these components as sets.
func (o *Options) cached(root string, paths map[Component]string) ([]*set, error) {
	var sets []*set
	files := slices.Compact([]string{kubernetesFile + Versions()[0], kubernetesFile + o.KubernetesVersion})
	files = append(files, slices.Compact(slices.Sorted(maps.Values(ownModules)))...)
	for _, file := range files {
		m, err := readModule(file)
		if err != nil {
			return nil, err
		}
		s := &set{module: m, dir: m.dir(root)}
		for _, c := range o.Components {
			if paths[c] == "" && c.moduleFile(o.KubernetesVersion) == file {
				paths[c] = filepath.Join(s.dir, string(c))
				s.programs = append(s.programs, c)
			}
		}
		if len(s.programs) > 0 {
			sets = append(sets, s)
		}
	}
	return sets, nil
}

// moduleFile returns the name, without extension, of the module file that the component
// is built from. Only the control plane's own programs are built from older modules.
func (c Component) moduleFile(kubernetesVersion string) string {
	switch {
	case ownModules[c] != "":
		return ownModules[c]
	case c.ofKubernetes():
		return kubernetesFile + kubernetesVersion
	}
	return kubernetesFile + Versions()[0]
}

// absent returns the programs that are not in the cache.
func (s *set) absent() []Component {
	return slices.DeleteFunc(slices.Clone(s.programs), func(c Component) bool {
		_, err := os.Stat(filepath.Join(s.dir, string(c)))
		return err == nil
	})
}

// A builder builds missing programs.
type builder struct {
	root     string // of the cache
	sets     []*set
	sources  []Source
	progress *progress.Progress
}

func (b *builder) run(ctx context.Context) error {
	b.markUsed()
	if !b.anythingToDo() {
		return nil
	}
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return fmt.Errorf("creating the cache: %w", err)
	}
	// Two simultaneous builds would compile the same packages.
	lock, err := filelock.Lock(ctx, filepath.Join(b.root, "lock"), func() {
		b.progress.Line("waiting for another process that is building")
	})
	if err != nil {
		return fmt.Errorf("waiting for another build: %w", err)
	}
	defer lock.Close()
	if !b.anythingToDo() { // the other process has built it
		return nil
	}
	jobs, cleanUp, err := b.jobs()
	defer cleanUp()
	if err != nil {
		return err
	}
	if err := compile(ctx, jobs, b.progress); err != nil {
		return err
	}
	prune(b.root)
	return nil
}

func (b *builder) anythingToDo() bool {
	return len(b.sources) > 0 || slices.ContainsFunc(b.sets, func(s *set) bool { return len(s.absent()) > 0 })
}

func (b *builder) markUsed() {
	for _, s := range b.sets {
		markUsed(s.dir)
	}
}

// jobs returns what must be compiled, in order, and a function that removes
// temporary files afterwards.
func (b *builder) jobs() (jobs []*job, cleanUp func(), err error) {
	cleanUp = func() {
		for _, s := range b.sets {
			_ = os.RemoveAll(s.work())
		}
	}
	for _, s := range b.sets {
		absent := s.absent()
		if len(absent) == 0 {
			continue
		}
		// A killed build leaves its directory behind. The lock shows that it is
		// no longer running.
		if err := os.RemoveAll(s.work()); err != nil {
			return nil, cleanUp, err
		}
		if err := s.module.write(s.work()); err != nil {
			return nil, cleanUp, err
		}
		jobs = append(jobs, s.job(absent))
	}
	for i := range b.sources {
		jobs = append(jobs, b.sources[i].job())
	}
	return jobs, cleanUp, nil
}

// work is where the set's module is while it is being built.
func (s *set) work() string { return filepath.Join(s.dir, "work") }
