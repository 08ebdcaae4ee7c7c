// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/testcluster/components"
)

// part is a part of the tests that can be run alone.
type part struct {
	name, what string
	// takes is its duration on the machine of measuredOn.
	takes    string
	dirs     []string // of modules
	packages []string // patterns, or none: all packages that no other part has
	except   []string // of the patterns
	race     bool
	short    bool
	// starts are packages of programs that the tests build and start.
	starts []components.Source
}

// measuredOn is the machine on which the durations of parts were measured.
const measuredOn = "2 cores, everything compiled, nothing cached, with some other work on the machine"

const unit = "unit"

var parts = []part{
	{
		name: "quick", what: "what needs no control plane, except e2e, bench and demo; no race detector", takes: "2 min",
		// Most of the time is spent on linking. Under -short, e2e runs few tests. The
		// other excluded packages have dependencies that nodegate does not have.
		dirs: []string{"."}, packages: []string{"./..."}, except: []string{"./e2e", "./e2e/judge/scenario", "./e2e/neighbours", "./e2e/node", "./e2e/torture", "./bench/...", "./demo"}, short: true,
		starts: []components.Source{helm, programs},
	},
	{
		name: unit, what: "packages without tests that need a control plane", takes: "7 min",
		dirs: []string{"."}, race: true,
	},
	{
		name: "cluster", what: "packages with tests on a control plane, except charts and e2e", takes: "5 min",
		dirs: []string{"."}, race: true, starts: []components.Source{programs},
		packages: []string{"./testcluster", "./testcluster/cmd/nodegate-cluster", "./cmd/nodegate", "./demo", "./internal/admission", "./internal/crd", "./internal/hold/agent", "./internal/kube/boundpods", "./internal/kube/feed", "./internal/kube/read", "./internal/kube/write"},
	},
	{
		name: "charts", what: "the Helm chart and deploy/, rendered and installed", takes: "4 min",
		dirs: []string{"."}, race: true, packages: []string{"./charts"},
		starts: []components.Source{helm, programs},
	},
	{
		name: "e2e", what: "nodegate as a whole, on control planes of two versions", takes: "12 min",
		dirs: []string{"."}, race: true, packages: []string{"./e2e", "./e2e/judge/scenario", "./e2e/judge/mutants", "./e2e/torture"}, starts: []components.Source{programs},
	},
	{
		name: "node", what: "nodegate with a real kubelet and containerd, as root on Linux", takes: "5 min",
		dirs: []string{"."}, packages: []string{"./testcluster/machine", "./e2e/node"}, starts: []components.Source{programs},
	},
	{
		name: "neighbours", what: "nodegate beside other controllers that use taints", takes: "9 min",
		dirs: []string{"."}, packages: []string{"./e2e/neighbours"}, starts: []components.Source{programs},
	},
	{
		name: "tools", what: "programs in modules of their own, under hack/tools", takes: "1 min",
		dirs: []string{"hack/tools/benchcompare", "hack/tools/image", "hack/tools/prometheus", "hack/tools/release", "hack/tools/vulncheck"}, packages: []string{"./..."},
		starts: []components.Source{programs},
	},
}

var (
	programs = components.Source{Name: "programs", Packages: []string{"./cmd/..."}, Tests: true}
	// Tests run Helm by 'go tool', which ignores the flags for compilers in GOFLAGS.
	helm = components.Source{
		Name: "helm", Flags: []string{"-modfile=hack/tools/helm/go.mod", "-gcflags=all="}, Packages: []string{"helm.sh/helm/v4/cmd/helm"}, Tests: true,
	}
)

// all contains the parts of 'make test'. quick repeats some of their tests, node needs more of
// the machine, and neighbours need programs that take long to build. Packages start in this
// order: e2e, which takes longest, has the others beside it.
var all = []string{"e2e", "cluster", "charts", unit, "tools"}

func findPart(name string) (part, bool) {
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return part{}, false
	}
	return parts[i], true
}

// writeParts lists parts: what they are, how long they take and how to run one.
func writeParts(w io.Writer, names []string) {
	fmt.Fprintf(w, "How long parts take: %s.\n", measuredOn)
	for _, p := range parts {
		if slices.Contains(names, p.name) {
			fmt.Fprintf(w, "  make test-%-8s %-7s %s\n", p.name, p.takes, p.what)
		}
	}
}

// plan combines parts into as few invocations of go test as possible: packages of
// one module with the same flags run in parallel.
func plan(ctx context.Context, root string, chosen []part, flags []string) ([]*invocation, error) {
	var list []*invocation
	for _, p := range chosen {
		flags := p.flags(flags)
		for _, dir := range p.dirs {
			packages, err := p.list(ctx, filepath.Join(root, dir))
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(list, func(i *invocation) bool { return i.module == dir && slices.Equal(i.flags, flags) })
			if i >= 0 {
				list[i].name += "+" + p.name
				list[i].packages = append(list[i].packages, packages...)
				continue
			}
			name := p.name
			if dir != "." {
				name = filepath.Base(dir)
			}
			list = append(list, &invocation{
				name: name, module: dir, dir: filepath.Join(root, dir), flags: flags, packages: packages, short: isOn(flags, "-short"),
			})
		}
	}
	return list, nil
}

func (p part) flags(given []string) []string {
	// 'make lint' runs vet's checks, which read all dependencies if nothing is cached.
	flags := []string{"-vet=off"}
	if p.race {
		flags = append(flags, "-race")
	}
	if p.short {
		// Most of the time is spent on linking, which is faster without debug information.
		flags = append(flags, "-short", "-ldflags=-s -w")
	}
	return append(flags, given...)
}

// list returns the packages of the part.
func (p part) list(ctx context.Context, dir string) ([]goPackage, error) {
	patterns, except := p.packages, p.except
	if len(patterns) == 0 {
		patterns = []string{"./..."}
		for _, other := range parts {
			if !other.short && slices.Equal(other.dirs, p.dirs) {
				except = append(except, other.packages...)
			}
		}
	}
	packages, err := list(ctx, dir, patterns)
	return slices.DeleteFunc(packages, func(q goPackage) bool {
		relative, err := filepath.Rel(dir, q.dir)
		return err == nil && slices.ContainsFunc(except, func(pattern string) bool { return matches(pattern, "./"+filepath.ToSlash(relative)) })
	}), err
}

// matches reports whether a package is, or is below, what the pattern names.
func matches(pattern, dir string) bool {
	below, tree := strings.CutSuffix(pattern, "/...")
	return dir == below || tree && strings.HasPrefix(dir, below+"/")
}

// list returns the packages that match patterns.
func list(ctx context.Context, dir string, patterns []string) ([]goPackage, error) {
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", "{{.ImportPath}}\t{{.Dir}}", "--"}, patterns...)...)
	command.Dir, command.Stderr = dir, os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var packages []goPackage
	for line := range strings.Lines(string(output)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		packages = append(packages, goPackage{path: path, dir: dir})
	}
	return packages, nil
}
