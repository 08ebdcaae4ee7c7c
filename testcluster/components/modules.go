// SPDX-License-Identifier: Apache-2.0

package components

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// moduleFiles holds a go.mod and go.sum per Kubernetes version, and those of other projects.
// They are not called go.mod so that they belong to this module and can be embedded, and
// their dependencies stay out of the build graph of nodegate's users. To support another
// Kubernetes version, add its two files: see README.md.
//
//go:embed *.mod *.sum *.go.txt
var moduleFiles embed.FS

// Names of module files, without extension. kubernetesFile is followed by a minor version.
const (
	kubernetesFile = "kubernetes-"
	containerdFile = "containerd-2.4"
)

// A module is a Go module from whose dependencies components are built.
type module struct {
	project  string // a key of projects
	minor    string // its minor version, such as "1.37"
	version  string // its version, such as "v1.37.1"
	mod, sum []byte // the contents of go.mod and go.sum
	// main is a main package of ours, if the project has no program that contains only the
	// tested part; or nil.
	main []byte
}

// Versions returns the minor versions of Kubernetes that can be built, newest
// first.
func Versions() []string {
	// The pattern is a constant and well-formed.
	files, _ := fs.Glob(moduleFiles, kubernetesFile+"*.mod")
	versions := make([]string, 0, len(files))
	for _, file := range files {
		versions = append(versions, strings.TrimPrefix(strings.TrimSuffix(file, ".mod"), kubernetesFile))
	}
	slices.SortFunc(versions, func(a, b string) int { return minorNumber(b) - minorNumber(a) })
	return versions
}

// VersionVariable is the environment variable that sets DefaultVersion. The tests
// then run on that version.
const VersionVariable = "NODEGATE_KUBERNETES_VERSION"

// DefaultVersion returns the minor version of Kubernetes that is used if none is
// specified: the one in VersionVariable, which may not be one of Versions, or the
// newest.
func DefaultVersion() string { return cmp.Or(os.Getenv(VersionVariable), Versions()[0]) }

// Before reports whether a minor version of Kubernetes is older than another.
func Before(version, other string) bool { return minorNumber(version) < minorNumber(other) }

// minorNumber returns 37 for "1.37".
func minorNumber(version string) int {
	_, text, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(text)
	return number
}

// projects are the paths of the projects' modules, by the names of the module files without
// the version.
var projects = map[string]string{
	"argocd":      "github.com/argoproj/argo-cd/v3",
	"cilium":      "github.com/cilium/cilium",
	"cluster-api": "sigs.k8s.io/cluster-api",
	"containerd":  "github.com/containerd/containerd/v2",
	"descheduler": "sigs.k8s.io/descheduler",
	"flux":        "github.com/fluxcd/pkg/ssa",
	"istio":       "istio.io/istio",
	"karpenter":   "sigs.k8s.io/karpenter",
	"kubernetes":  "k8s.io/kubernetes",
}

// required returns the version of a module that a go.mod requires, or "".
func required(mod []byte, path string) string {
	match := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(path) + ` (v\S+)`).FindSubmatch(mod)
	if match == nil {
		return ""
	}
	return string(match[1])
}

// moduleOf returns the module of a minor version of Kubernetes.
func moduleOf(minor string) (*module, error) {
	known := Versions()
	if !slices.Contains(known, minor) {
		return nil, fmt.Errorf("unknown Kubernetes version %q: must be one of %s", minor, strings.Join(known, ", "))
	}
	return readModule(kubernetesFile + minor)
}

// readModule returns the module of a file (see moduleFiles).
func readModule(file string) (*module, error) {
	m := &module{}
	dash := strings.LastIndexByte(file, '-')
	m.project, m.minor = file[:dash], file[dash+1:]
	var err error
	if m.mod, err = moduleFiles.ReadFile(file + ".mod"); err != nil {
		return nil, fmt.Errorf("reading the embedded module: %w", err)
	}
	if m.sum, err = moduleFiles.ReadFile(file + ".sum"); err != nil {
		return nil, fmt.Errorf("reading the embedded module: %w", err)
	}
	if m.main, err = moduleFiles.ReadFile(file + ".go.txt"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the embedded program: %w", err)
	}
	if m.version = required(m.mod, projects[m.project]); m.version == "" {
		return nil, fmt.Errorf("embedded module %s.mod does not require %s", file, m.project)
	}
	return m, nil
}

// tags returns the build tags. Those of containerd omit snapshotters that need
// libraries of the machine, and those of Cilium are its generic operator's.
func (m *module) tags() string {
	switch m.project {
	case "cilium":
		return "ipam_provider_operator"
	case "containerd":
		return "no_btrfs,no_devmapper,no_zfs"
	}
	return ""
}

// ldflags returns the linker's flags, which do not affect the compilation of
// packages.
func (m *module) ldflags() string {
	// Upstream's build sets the version. Without it, the API server's version is
	// v0.0.0-master, and it refuses to emulate any version. Programs without such
	// a variable ignore it. Symbol tables and DWARF are omitted, because these
	// programs are not debugged and link faster without them.
	const variable = " -X k8s.io/component-base/version."
	if m.project != "kubernetes" {
		return "-s -w"
	}
	return "-s -w" +
		variable + "gitVersion=" + m.version +
		variable + "gitMajor=1" +
		variable + "gitMinor=" + strconv.Itoa(minorNumber(m.minor)) +
		variable + "gitTreeState=clean"
}

// dir returns the module's directory in the cache. It depends on the sources, the
// flags and the Go version.
func (m *module) dir(root string) string {
	hash := sha256.New()
	for _, part := range []string{
		string(m.mod), string(m.sum) + string(m.main), m.tags(), m.ldflags(), runtime.Version(), runtime.GOOS, runtime.GOARCH,
	} {
		fmt.Fprintf(hash, "%d\n%s\n", len(part), part)
	}
	return filepath.Join(root, fmt.Sprintf("%s-%s-%x", m.project, m.version, hash.Sum(nil)[:6]))
}

// write writes the module into a new directory.
func (m *module) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), m.mod, 0o644); err != nil {
		return err
	}
	if m.main != nil {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), m.main, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), m.sum, 0o644)
}
