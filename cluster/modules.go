// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// moduleFiles holds a go.mod and go.sum per set of components. They are not
// called go.mod so that they belong to this module and can be embedded, and
// their dependencies stay out of everybody's build graph. To support another
// Kubernetes version, add its two files: see components/README.md.
//
//go:embed components/*.mod components/*.sum
var moduleFiles embed.FS

const kubernetesPrefix = "kubernetes-"

// A module is a Go module from whose dependencies components are built.
type module struct {
	name     string            // of its files, such as "kubernetes-1.37"
	version  string            // of the program's own module, such as "v1.37.1"
	mod, sum []byte            // the contents of go.mod and go.sum
	ldflags  string            // flags for the linker
	packages map[string]string // main package by the name of its program
}

// Versions returns the minor versions of Kubernetes that can be started,
// newest first.
func Versions() []string {
	// The pattern is a constant and well-formed.
	files, _ := fs.Glob(moduleFiles, "components/"+kubernetesPrefix+"*.mod")
	versions := make([]string, 0, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".mod")
		versions = append(versions, strings.TrimPrefix(name, kubernetesPrefix))
	}
	slices.SortFunc(versions, func(a, b string) int { return minor(b) - minor(a) })
	return versions
}

// minor returns 37 for "1.37".
func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(text)
	return number
}

// kubernetesModule returns the module for a minor version, or for the newest
// if version is empty.
func kubernetesModule(version string) (*module, error) {
	known := Versions()
	if version == "" {
		version = known[0]
	}
	if !slices.Contains(known, version) {
		return nil, fmt.Errorf("unknown Kubernetes version %q: known are %s", version, strings.Join(known, ", "))
	}
	m, err := readModule(kubernetesPrefix+version, "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	for _, component := range []Component{APIServer, Scheduler, ControllerManager} {
		m.packages[string(component)] = "k8s.io/kubernetes/cmd/" + string(component)
	}
	// Upstream's build sets these; without them the API server calls itself
	// v0.0.0-master and refuses to emulate any version.
	const variable = "-X k8s.io/component-base/version."
	m.ldflags += " " + variable + "gitVersion=" + m.version +
		" " + variable + "gitMajor=1" +
		" " + variable + "gitMinor=" + strconv.Itoa(minor(version)) +
		" " + variable + "gitTreeState=clean"
	return m, nil
}

func etcdModule() (*module, error) {
	m, err := readModule("etcd", "go.etcd.io/etcd/server/v3")
	if err != nil {
		return nil, err
	}
	m.packages[string(Etcd)] = "go.etcd.io/etcd/server/v3"
	return m, nil
}

func kwokModule() (*module, error) {
	m, err := readModule("kwok", "sigs.k8s.io/kwok")
	if err != nil {
		return nil, err
	}
	m.packages[string(KWOK)] = "sigs.k8s.io/kwok/cmd/kwok"
	return m, nil
}

// readModule reads an embedded module; its version is the one it requires of
// the module with the path given.
func readModule(name, modulePath string) (*module, error) {
	mod, err := moduleFiles.ReadFile("components/" + name + ".mod")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded module: %w", err)
	}
	sum, err := moduleFiles.ReadFile("components/" + name + ".sum")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded module: %w", err)
	}
	require := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(modulePath) + ` (v\S+)`)
	match := require.FindSubmatch(mod)
	if match == nil {
		return nil, fmt.Errorf("embedded module %s does not require %s", name, modulePath)
	}
	return &module{
		name:     name,
		version:  string(match[1]),
		mod:      mod,
		sum:      sum,
		ldflags:  "-s -w",
		packages: map[string]string{},
	}, nil
}

// key names the module's place in the cache: programs built from other
// sources, with other flags or by another Go are elsewhere.
func (m *module) key() string {
	hash := sha256.New()
	for _, part := range []string{
		string(m.mod), string(m.sum), m.ldflags, runtime.Version(), runtime.GOOS, runtime.GOARCH,
	} {
		fmt.Fprintf(hash, "%d\n%s\n", len(part), part)
	}
	base, _, _ := strings.Cut(m.name, "-")
	return fmt.Sprintf("%s-%s-%x", base, m.version, hash.Sum(nil)[:6])
}
