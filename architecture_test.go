// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodegate/nodegate/"

// mayImport says which of our packages a package may use, directly or not.
// Tests may use what they like. See "The rooms" in docs/architecture.md.
var mayImport = map[string][]string{
	"api/v1alpha1": {},

	// The core decides. It knows no client.
	"internal/gate":       {"api/v1alpha1"},
	"internal/expression": {"api/v1alpha1", "internal/gate"},
	"internal/signal":     {"api/v1alpha1", "internal/gate", "internal/expression"},

	// Ready-made gates, and the taint keys that are allowed because of them.
	"presets": {"api/v1alpha1"},

	// The definition of the API, and the same rules without an API server.
	"internal/crd":         {"api/v1alpha1"},
	"internal/crd/crdtest": {"api/v1alpha1", "internal/crd", "cluster/await", "cluster/await/awaittest"},

	// The shell observes and writes. It decides nothing.
	"internal/cluster":               {"api/v1alpha1", "internal/gate", "internal/cluster/packed", "internal/cluster/wire"},
	"internal/cluster/packed":        {"api/v1alpha1", "internal/gate"},
	"internal/cluster/wire":          {},
	"internal/cluster/wire/wiretest": {},

	// Gates from files instead of from the API server.
	"internal/gatefile": {"api/v1alpha1", "internal/crd", "internal/gate", "internal/cluster", "internal/cluster/packed", "internal/cluster/wire"},

	// What the API server does for us, what an administrator applies, and what
	// brings all of it together.
	"internal/admission":   {"api/v1alpha1", "internal/gate"},
	"internal/webhook":     {"api/v1alpha1", "internal/gate"},
	"internal/certificate": {},
	"internal/install":     {"api/v1alpha1", "internal/crd", "internal/gate", "internal/admission"},
	"internal/controller":  {"api/v1alpha1", "internal/gate", "internal/expression", "internal/signal", "internal/cluster", "internal/cluster/packed", "internal/cluster/wire", "internal/admission", "internal/webhook", "internal/certificate"},

	// What leaves nothing of nodegate behind.
	"internal/release":   {"api/v1alpha1", "internal/gate", "internal/cluster", "internal/cluster/packed", "internal/cluster/wire"},
	"internal/uninstall": {"api/v1alpha1", "internal/crd", "internal/gate", "internal/cluster", "internal/cluster/packed", "internal/cluster/wire", "internal/admission", "internal/install", "internal/release"},

	// The verbs of kubectl gate. They ask a cluster once, and decide as nodegate does.
	"internal/cli": {"api/v1alpha1", "internal/gate", "internal/expression", "internal/signal", "internal/cluster", "internal/cluster/packed", "internal/cluster/wire", "internal/convert", "internal/crd", "internal/gatefile", "internal/admission", "internal/preview", "internal/lint", "internal/timeline", "internal/report", "internal/release", "internal/uninstall", "internal/install"},

	// What they have worked out. Pure.
	"internal/preview": {"api/v1alpha1", "internal/gate", "internal/expression", "internal/signal"},
	"internal/lint":    {"api/v1alpha1", "internal/gate", "internal/expression", "internal/signal"},

	// How nodes came to be fit, told and drawn.
	"internal/timeline": {"api/v1alpha1", "internal/gate"},
	"internal/report":   {"api/v1alpha1", "internal/gate", "internal/timeline"},

	// Other tools' configuration. It asks no cluster.
	"internal/convert": {"api/v1alpha1", "internal/crd"},

	// A control plane for anybody's tests. It knows nothing of nodegate.
	// Who may use it may use what it is made of.
	"cluster":                      {},
	"cluster/await":                {},
	"cluster/await/awaittest":      {"cluster/await"},
	"cluster/command":              {},
	"cluster/components":           {"cluster/filelock", "cluster/processgroup", "cluster/progress"},
	"cluster/filelock":             {},
	"cluster/processgroup":         {},
	"cluster/progress":             {},
	"cluster/clustertest":          {"cluster"},
	"cluster/cmd/nodegate-cluster": {"cluster"},
	"cluster/cmd/nodegate-build":   {"cluster/command", "cluster/components", "cluster/filelock", "cluster/processgroup", "cluster/progress"},

	// nodegate as its users run it, for the demo and the benchmarks.
	"internal/testbed": {"api/v1alpha1", "cluster"},

	// The benchmark: processes that watch and write, a driver, and figures that
	// bring them together.
	"bench/scene":    {"api/v1alpha1", "cluster", "internal/testbed"},
	"bench/child":    {"cluster"},
	"bench/driver":   {"api/v1alpha1", "cluster", "internal/testbed", "bench/scene"},
	"bench/observer": {"api/v1alpha1", "cluster", "internal/testbed", "bench/scene", "bench/child"},
	"bench/limit":    {"api/v1alpha1", "cluster", "internal/testbed", "bench/scene", "bench/child"},
	"bench/meter":    {"cluster"},
	"bench/report":   {},
	"bench/standin":  {},
	"bench/figure":   {"api/v1alpha1", "cluster", "internal/testbed", "bench/scene", "bench/child", "bench/driver", "bench/observer", "bench/limit", "bench/meter", "bench/report", "bench/standin", "internal/install", "internal/admission", "internal/crd", "internal/gate"},
	"bench":          {"api/v1alpha1", "cluster", "internal/testbed", "bench/scene", "bench/child", "bench/driver", "bench/observer", "bench/limit", "bench/meter", "bench/report", "bench/standin", "internal/install", "internal/admission", "internal/crd", "internal/gate", "bench/figure"},
}

// pure are the packages that compute, and do nothing else.
var pure = []string{"internal/gate", "internal/expression", "internal/signal", "internal/preview", "internal/lint", "internal/timeline"}

// clients are what these must not have, even indirectly.
var clients = []string{
	"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "sigs.k8s.io/controller-runtime",
}

// language is Kubernetes' dialect of CEL, which lives in the API server's module
// and brings only types along: expressions may depend on exactly these packages
// of it.
var language = []string{
	"k8s.io/apiserver/pkg/apis/cel", "k8s.io/apiserver/pkg/cel", "k8s.io/apiserver/pkg/cel/library",
	"k8s.io/apiserver/pkg/authentication/serviceaccount", "k8s.io/apiserver/pkg/authentication/user",
	"k8s.io/apiserver/pkg/authorization/authorizer",
}

// effects are what these must not import: input, output, logs, randomness, and
// clocks other than the time that they are given.
var effects = []string{
	"os", "io", "net", "log", "math/rand", "crypto/rand",
	"k8s.io/klog/v2", "k8s.io/utils/clock",
}

// A goPackage is what go list tells about a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t, "./api/...", "./internal/...", "./presets/...", "./cluster/...", "./bench/...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("%s has no row in mayImport: say what it may use", name)
			continue
		}
		for _, dep := range p.Deps {
			ours, ok := strings.CutPrefix(dep, module)
			if ok && strings.HasPrefix(ours, "cluster/") && (name == "cluster" || slices.Contains(allowed, "cluster")) {
				continue
			}
			if ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s may not use %s", name, ours)
			}
		}
	}
}

// room is a row of the page's table of rooms: its name, and who may be entered.
var room = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .* \\|([^|]*)\\|$")

// The page's table of rooms says the same as mayImport.
func TestTheRoomsAreOnThePage(t *testing.T) {
	page := read(t, "docs/architecture.md")
	told := make(map[string][]string)
	for _, row := range room.FindAllStringSubmatch(page, -1) {
		rooms := strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' })
		if strings.TrimSpace(row[2]) == "none of the above" {
			rooms = nil
		}
		slices.Sort(rooms)
		told[row[1]] = rooms
	}
	for name, allowed := range mayImport {
		var rooms []string
		for _, other := range allowed {
			rooms = append(rooms, strings.TrimPrefix(strings.TrimSuffix(other, "/v1alpha1"), "internal/"))
		}
		slices.Sort(rooms)
		inner := slices.ContainsFunc(slices.Collect(maps.Keys(mayImport)), func(outer string) bool { return strings.HasPrefix(name, outer+"/") })
		if !inner && !slices.Equal(told[name], rooms) { // inner ones are told with their outer one
			t.Errorf("docs/architecture.md: %s may enter %v; it may use %v", name, told[name], rooms)
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	for _, name := range pure {
		for _, p := range packages(t, "./"+name) {
			for _, dep := range within(p.Deps, clients) {
				if name != "internal/gate" && slices.Contains(language, dep) {
					continue
				}
				t.Errorf("%s may not depend on %s", name, dep)
			}
			for _, dep := range within(p.Imports, effects) {
				t.Errorf("%s may not import %s", name, dep)
			}
		}
	}
}

// TestControlPlaneStaysOutside keeps the programs that nodegate ships free of
// the control plane that only tests and the demo need.
func TestControlPlaneStaysOutside(t *testing.T) {
	outside := []string{module + "cluster", module + "demo", module + "e2e", module + "bench", module + "internal/testbed"}
	for _, p := range packages(t, "./cmd/...") {
		for _, dep := range within(p.Deps, outside) {
			t.Errorf("%s may not depend on %s", p.ImportPath, dep)
		}
	}
}

// What runs first on a fresh machine has to be compiled in seconds.
func TestTheBuilderNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range packages(t, "./cluster/cmd/nodegate-build") {
		for _, dep := range p.Deps {
			domain, _, _ := strings.Cut(dep, "/")
			if strings.Contains(domain, ".") && !strings.HasPrefix(dep, module) {
				t.Errorf("%s may not depend on %s", p.ImportPath, dep)
			}
		}
	}
}

// within returns the packages that are, or are below, one of the roots.
func within(packages, roots []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(name string) bool {
		return !slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(name+"/", root+"/") })
	})
}

// packages asks go list.
func packages(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	dependOnSources(t)
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, patterns...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("listing packages: %v\n%s", err, stderr.String())
	}
	var list []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		list = append(list, p)
	}
}

// dependOnSources makes the go command run these tests again when any source
// has changed: it remembers which files a test has looked at.
func dependOnSources(t *testing.T) {
	t.Helper()
	for _, root := range []string{"api", "bench", "cluster", "cmd", "internal", "presets"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			t.Fatalf("looking at the sources: %v", err)
		}
	}
}
