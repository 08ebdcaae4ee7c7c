// SPDX-License-Identifier: Apache-2.0

package components

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/nodegate/nodegate/testcluster/progress"
)

// assetsVariable is the environment variable with a directory of existing
// programs, as in controller-runtime's envtest.
const assetsVariable = "KUBEBUILDER_ASSETS"

// installed returns the requested components that are installed with a suitable
// version, in $KUBEBUILDER_ASSETS or else on the PATH.
func installed(ctx context.Context, opts *Options, p *progress.Progress) (map[Component]string, error) {
	assets := os.Getenv(assetsVariable)
	if assets != "" {
		var err error
		if assets, err = filepath.Abs(assets); err != nil {
			return nil, fmt.Errorf("reading $%s: %w", assetsVariable, err)
		}
		if _, err := os.ReadDir(assets); err != nil {
			return nil, fmt.Errorf("reading $%s: %w", assetsVariable, err)
		}
	}
	paths := map[Component]string{}
	for _, c := range opts.Components {
		if ownModules[c] != "" || c == Controllers {
			continue // tests depend on the exact version, or only nodegate has it
		}
		for _, file := range candidates(assets, c) {
			version, err := versionOf(ctx, c, file)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				p.Line("not using %s: %v", file, err)
				continue
			}
			if want := wanted(c, opts.KubernetesVersion); !want.accepts(version) {
				p.Line("not using %s: its version is %s, want %s", file, version, want)
				continue
			}
			p.Line("using %s %s", file, version)
			paths[c] = file
			break
		}
	}
	return paths, nil
}

// candidates returns the files that may be the component's program, in order of
// preference.
func candidates(assets string, c Component) []string {
	var files []string
	if assets != "" {
		file := filepath.Join(assets, string(c))
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			files = append(files, file)
		}
	}
	if file, err := exec.LookPath(string(c)); err == nil {
		files = append(files, file)
	}
	return files
}

// A release is a version of a program, without its patch level.
type release struct{ major, minor int }

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

// An interval is the releases from the first to the last, both included.
type interval struct{ first, last release }

func (i interval) String() string {
	if i.first == i.last {
		return i.first.String()
	}
	return i.first.String() + " to " + i.last.String()
}

func (i interval) accepts(r release) bool {
	return r.major == i.first.major && r.minor >= i.first.minor && r.minor <= i.last.minor
}

// wanted returns the releases of a component that are suitable for a Kubernetes
// version.
func wanted(c Component, kubernetes string) interval {
	exact := release{1, minorNumber(kubernetes)}
	switch c {
	case Etcd:
		// From the minimum in the documentation of the API server's flags to the
		// newest tested release.
		return interval{release{3, 5}, release{3, 7}}
	case KWOK:
		return interval{release{0, 7}, release{0, 8}}
	case Kubelet:
		newest := release{1, minorNumber(Versions()[0])} // see moduleFile
		return interval{newest, newest}
	case Kubectl:
		// Kubernetes' version skew policy: one minor version, older or newer.
		return interval{release{1, exact.minor - 1}, release{1, exact.minor + 1}}
	}
	return interval{exact, exact}
}

var versionNumber = regexp.MustCompile(`\bv?(\d+)\.(\d+)\.\d+`)

// versionOf runs a program to get its version.
func versionOf(ctx context.Context, c Component, file string) (release, error) {
	arguments := []string{"--version"}
	if c == Kubectl {
		arguments = []string{"version", "--client"}
	}
	output, err := exec.CommandContext(ctx, file, arguments...).Output()
	if err != nil {
		return release{}, fmt.Errorf("reading its version: %w", err)
	}
	match := versionNumber.FindSubmatch(output)
	if match == nil {
		return release{}, errors.New("reading its version: its output contains none")
	}
	// The strings consist of digits. A number that is too large is in no
	// interval.
	major, _ := strconv.Atoi(string(match[1]))
	minor, _ := strconv.Atoi(string(match[2]))
	return release{major, minor}, nil
}
