// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// assetsVariable names a directory with ready-made programs, as
	// controller-runtime's envtest has it.
	assetsVariable = "KUBEBUILDER_ASSETS"

	// cacheVariable overrides the directory for built programs.
	cacheVariable = "NODEGATE_CACHE"

	// cachePeriod is how long programs stay in the cache without being used.
	cachePeriod = 30 * 24 * time.Hour
)

// Build builds the programs that a cluster with these options needs and that
// are neither in $KUBEBUILDER_ASSETS nor built already, and returns the path
// of each. Start does the same, so nobody has to call Build; it is there to
// have the minutes of the first build at a time of one's own choosing.
func Build(ctx context.Context, opts Options) (map[Component]string, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	binaries, err := assets(&opts)
	if err != nil {
		return nil, err
	}
	modules, err := modulesFor(&opts)
	if err != nil {
		return nil, err
	}
	progress := newProgress(opts.Progress)
	defer progress.clear()
	for _, m := range modules {
		var missing []string
		for _, component := range Components() {
			_, here := m.packages[string(component)]
			if here && opts.runs(component) && binaries[component] == "" {
				missing = append(missing, string(component))
			}
		}
		built, err := m.build(ctx, missing, progress)
		if err != nil {
			return nil, err
		}
		for program, file := range built {
			binaries[Component(program)] = file
		}
	}
	return binaries, nil
}

// modulesFor returns the modules that know how to build a cluster's programs.
func modulesFor(opts *Options) ([]*module, error) {
	kubernetes, err := kubernetesModule(opts.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	etcd, err := etcdModule()
	if err != nil {
		return nil, err
	}
	kwok, err := kwokModule()
	if err != nil {
		return nil, err
	}
	return []*module{etcd, kubernetes, kwok}, nil
}

// assets returns what $KUBEBUILDER_ASSETS has of the programs wanted.
func assets(opts *Options) (map[Component]string, error) {
	binaries := map[Component]string{}
	dir := os.Getenv(assetsVariable)
	if dir == "" {
		return binaries, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("reading $%s: %w", assetsVariable, err)
	}
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("reading $%s: %w", assetsVariable, err)
	}
	for _, component := range slices.DeleteFunc(Components(), func(c Component) bool { return !opts.runs(c) }) {
		if component.versioned() && !opts.newest() {
			continue // what is there is of a version of its own
		}
		file := filepath.Join(dir, string(component))
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			binaries[component] = file
		}
	}
	return binaries, nil
}

// cacheRoot is the directory below which built programs are kept.
func cacheRoot() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache directory (set $%s to choose one): %w", cacheVariable, err)
	}
	return filepath.Join(dir, "nodegate"), nil
}

// markUsed notes that the programs in a directory of the cache are in use.
func markUsed(dir string) {
	now := time.Now()
	// Who cannot write to the cache does not prune it either.
	_ = os.Chtimes(dir, now, now)
}

// prune removes from the cache what nobody has used for cachePeriod: programs
// of old versions, and those that an old Go has built.
func prune(root string) {
	dirs, err := filepath.Glob(filepath.Join(root, "*-v*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < cachePeriod {
			continue
		}
		lock, err := tryLockFile(filepath.Join(dir, "lock"))
		if err != nil {
			continue // something is being built there
		}
		_ = os.RemoveAll(dir)
		lock.Close()
	}
}
