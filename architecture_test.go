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
	"unicode"
)

const module = "github.com/nodegate/nodegate/"

// mayImport lists the packages of this module that a package may import. Tests may
// import any. See "The rooms" in docs/architecture.md.
var mayImport = map[string][]string{
	"api/v1alpha1": {},

	// The core makes decisions. It does not depend on a client.
	"internal/gate":       {"api/v1alpha1"},
	"internal/expression": {"internal/gate"},
	"internal/signal":     {"api/v1alpha1", "internal/expression", "internal/gate"},

	// Ready-made gates, and the taint keys that are allowed because of them.
	"presets":          {"api/v1alpha1"},
	"presets/upstream": {},

	// Known programs that write the same taints.
	"internal/writers": {},

	// The version of the running program.
	"internal/version": {},

	// The model explores all interleavings of events with real decisions and
	// patches. It contains only tests.
	"internal/model": {},

	// The CRD, and its rules without an API server.
	"internal/crd":         {"api/v1alpha1"},
	"internal/crd/crdtest": {"api/v1alpha1", "internal/crd", "testcluster/await/awaittest"},

	// These packages watch, read and write the API. They make no decisions.
	"internal/kube/restconfig":    {},
	"internal/kube/gateclient":    {"api/v1alpha1", "internal/kube/restconfig"},
	"internal/kube/clients":       {"internal/gate", "internal/kube/restconfig", "internal/kube/wire"},
	"internal/kube/connection":    {},
	"internal/kube/jsonclient":    {"internal/kube/connection"},
	"internal/kube/reflector":     {},
	"internal/kube/gates":         {"api/v1alpha1", "internal/kube/gateclient", "internal/kube/reflector"},
	"internal/kube/intern":        {},
	"internal/kube/nodestore":     {"api/v1alpha1", "internal/expression", "internal/gate", "internal/kube/clients", "internal/kube/intern", "internal/kube/nodediff", "internal/kube/packed"},
	"internal/kube/feed":          {"api/v1alpha1", "internal/expression", "internal/gate", "internal/kube/clients", "internal/kube/gateclient", "internal/kube/gates", "internal/kube/intern", "internal/kube/nodestore", "internal/kube/packed", "internal/kube/reflector", "internal/kube/restconfig"},
	"internal/kube/boundpods":     {"internal/gate", "internal/kube/clients", "internal/kube/restconfig", "internal/kube/wire"},
	"internal/kube/read":          {"api/v1alpha1", "internal/gate", "internal/kube/boundpods", "internal/kube/clients", "internal/kube/feed", "internal/kube/gateclient", "internal/kube/nodestore", "internal/kube/restconfig", "internal/kube/wire", "internal/writers"},
	"internal/kube/write":         {"api/v1alpha1", "internal/gate", "internal/kube/clients", "internal/kube/restconfig", "internal/kube/wire"},
	"internal/kube/kubetest":      {"api/v1alpha1", "internal/crd/crdtest", "testcluster"},
	"internal/kube/packed":        {"internal/gate"},
	"internal/kube/nodediff":      {"internal/gate"},
	"internal/kube/wire":          {},
	"internal/kube/wire/wiretest": {},

	"internal/kube/connection/connectiontest": {},

	// Gates from files instead of from the API server.
	"internal/gatefile": {"api/v1alpha1", "internal/crd", "internal/kube/gates", "internal/kube/reflector"},

	// Admission by the API server, the manifests, and the controller with its
	// parts.
	"internal/admission":                 {"api/v1alpha1", "internal/gate"},
	"internal/webhook":                   {"api/v1alpha1", "internal/gate"},
	"internal/access":                    {},
	"internal/certificate":               {"internal/admission"},
	"internal/install":                   {"api/v1alpha1", "internal/admission", "internal/crd"},
	"internal/election":                  {},
	"internal/gateset":                   {"api/v1alpha1", "internal/expression", "internal/gate", "internal/signal"},
	"internal/fleet":                     {"api/v1alpha1", "internal/gate"},
	"internal/telemetry":                 {"api/v1alpha1", "internal/fleet", "internal/gate", "internal/kube/boundpods", "internal/kube/reflector", "internal/kube/write"},
	"internal/birth":                     {"api/v1alpha1", "internal/admission", "internal/gateset", "internal/kube/clients", "internal/telemetry"},
	"internal/bypass":                    {"api/v1alpha1", "internal/fleet", "internal/gate", "internal/gateset", "internal/kube/boundpods", "internal/telemetry"},
	"internal/nodequeue":                 {},
	"internal/readinessrules":            {"internal/writers"},
	"internal/controller/controllertest": {"api/v1alpha1", "internal/admission", "internal/gate"},
	"internal/controller":                {"api/v1alpha1", "internal/access", "internal/admission", "internal/birth", "internal/bypass", "internal/election", "internal/fleet", "internal/gate", "internal/gateset", "internal/kube/boundpods", "internal/kube/feed", "internal/kube/gates", "internal/kube/reflector", "internal/kube/write", "internal/nodequeue", "internal/readinessrules", "internal/signal", "internal/telemetry", "internal/webhook", "internal/writers"},

	// The node agent, and the plugin of the container runtime that holds pods.
	"internal/hold":        {},
	"internal/hold/agent":  {"internal/hold", "internal/kube/jsonclient", "internal/logind"},
	"internal/hold/plugin": {"internal/hold"},
	"internal/logind":      {},

	// Removal of nodegate from a cluster.
	"internal/release":   {"api/v1alpha1", "internal/admission", "internal/gate", "internal/install", "internal/kube/read", "internal/kube/write"},
	"internal/uninstall": {"api/v1alpha1", "internal/admission", "internal/gate", "internal/install", "internal/kube/read", "internal/kube/restconfig", "internal/printer", "internal/release"},

	"internal/tolerate": {"api/v1alpha1", "internal/admission", "internal/gate", "internal/gateset", "internal/kube/write", "internal/release"},

	// The verbs of kubectl gate. They read a cluster once, and decide like the
	// controller.
	"internal/cli":         {"api/v1alpha1", "internal/admission", "internal/convert", "internal/descheduler", "internal/explain", "internal/gate", "internal/gatefile", "internal/gateset", "internal/kube/read", "internal/kube/write", "internal/lint", "internal/pending", "internal/preview", "internal/printer", "internal/release", "internal/report", "internal/status", "internal/suggest", "internal/timeline", "internal/tolerate", "internal/uninstall", "internal/version", "internal/wait", "presets"},
	"internal/cli/clitest": {"api/v1alpha1", "internal/gate", "internal/gatefile"},

	// What these verbs compute, and its text. Pure, except that report writes a page.
	"internal/descheduler": {"api/v1alpha1"},
	"internal/explain":     {"api/v1alpha1", "internal/gate", "internal/gateset", "internal/printer"},
	"internal/lint":        {"api/v1alpha1", "internal/descheduler", "internal/gate", "internal/gateset", "internal/printer", "internal/signal", "internal/writers"},
	"internal/pending":     {"api/v1alpha1", "internal/explain", "internal/gate", "internal/gateset", "internal/printer", "internal/report"},
	"internal/preview":     {"api/v1alpha1", "internal/descheduler", "internal/gate", "internal/gateset", "internal/printer", "internal/signal"},
	"internal/printer":     {"internal/gate"},
	"internal/report":      {"api/v1alpha1", "internal/gate", "internal/gateset", "internal/printer", "internal/timeline"},
	"internal/status":      {"api/v1alpha1", "internal/gate", "internal/gateset", "internal/printer"},
	"internal/suggest":     {"api/v1alpha1", "internal/gate", "internal/gateset", "internal/preview", "internal/printer", "internal/writers"},
	"internal/timeline":    {"api/v1alpha1", "internal/gate", "internal/printer"},
	"internal/wait":        {"api/v1alpha1", "internal/gate", "internal/gateset", "internal/printer"},

	// Conversion of other tools' configuration. It needs no cluster.
	"internal/convert": {"api/v1alpha1", "internal/crd"},

	// A control plane for tests, independent of nodegate. A package that may
	// import it may import its parts.
	"testcluster":                      {"testcluster/await", "testcluster/components", "testcluster/filelock", "testcluster/freeport", "testcluster/processgroup", "testcluster/progress"},
	"testcluster/await":                {},
	"testcluster/await/awaittest":      {"testcluster/await"},
	"testcluster/command":              {},
	"testcluster/components":           {"testcluster/filelock", "testcluster/processgroup", "testcluster/progress"},
	"testcluster/filelock":             {},
	"testcluster/freeport":             {},
	"testcluster/processgroup":         {},
	"testcluster/progress":             {},
	"testcluster/simnode":              {},
	"testcluster/clustertest":          {"testcluster", "testcluster/components"},
	"testcluster/machine":              {"testcluster", "testcluster/components"},
	"testcluster/machine/pod":          {},
	"testcluster/cmd/nodegate-cluster": {"testcluster", "testcluster/command"},
	"testcluster/cmd/nodegate-build":   {"testcluster/command", "testcluster/components"},

	// nodegate as users run it, for the demo, the judge's scenario, the torture
	// campaign and the benchmarks.
	"internal/testbed": {"api/v1alpha1", "testcluster"},

	// The judge of a run shares no code with what it judges.
	"e2e/judge":                      {"api/v1alpha1", "e2e/judge/facts", "e2e/judge/outages", "e2e/judge/rejections", "e2e/judge/revisions"},
	"e2e/judge/facts":                {"api/v1alpha1", "presets"},
	"e2e/judge/revisions":            {"api/v1alpha1"},
	"e2e/judge/outages":              {"e2e/judge/facts", "e2e/judge/revisions"},
	"e2e/judge/rejections":           {"api/v1alpha1", "e2e/judge/facts", "e2e/judge/revisions"},
	"e2e/judge/recording":            {"api/v1alpha1", "e2e/judge/revisions", "testcluster"},
	"e2e/judge/cmd/nodegate-judge":   {"e2e/judge", "e2e/judge/recording", "e2e/judge/revisions", "testcluster/command"},
	"e2e/judge/cmd/nodegate-mutants": {"e2e/judge/mutants", "e2e/judge/scenario", "internal/testbed", "testcluster"},
	"e2e/judge/mutants":              {"e2e/judge", "e2e/judge/scenario", "testcluster"},
	"e2e/judge/scenario":             {"api/v1alpha1", "e2e/judge", "e2e/judge/recording", "internal/testbed", "testcluster"},

	// nodegate with injected faults.
	"e2e/torture/faultproxy":           {},
	"e2e/torture/clocks":               {},
	"e2e/torture":                      {"api/v1alpha1", "e2e/judge", "e2e/judge/recording", "e2e/torture/clocks", "e2e/torture/faultproxy", "internal/testbed", "testcluster"},
	"e2e/torture/cmd/nodegate-torture": {"e2e/torture", "e2e/torture/clocks", "internal/testbed", "testcluster/command"},

	// The benchmark: processes that watch and write, a driver, and the figures.
	"bench/fixture":  {"internal/testbed"},
	"bench/child":    {"testcluster"},
	"bench/driver":   {"bench/fixture", "internal/testbed", "testcluster"},
	"bench/observer": {"bench/child", "bench/fixture", "internal/kube/wire", "testcluster"},
	"bench/limit":    {"api/v1alpha1", "bench/child", "bench/fixture", "testcluster"},
	"bench/meter":    {"testcluster"},
	"bench/peer":     {"api/v1alpha1", "bench/driver", "bench/figure", "bench/fixture", "bench/meter", "bench/observer", "bench/report", "internal/testbed", "testcluster"},
	"bench/report":   {},
	"bench/fakeapi":  {},
	"bench/steady":   {"api/v1alpha1", "bench/driver", "bench/fakeapi", "bench/fixture", "bench/meter", "internal/gate", "internal/testbed", "testcluster"},
	"bench/figure":   {"api/v1alpha1", "bench/child", "bench/driver", "bench/fakeapi", "bench/fixture", "bench/limit", "bench/meter", "bench/observer", "bench/report", "bench/steady", "internal/admission", "internal/gate", "internal/install", "internal/kube/write", "internal/testbed", "testcluster"},
	"bench/growth":   {"api/v1alpha1", "bench/fakeapi", "bench/figure", "bench/fixture", "bench/meter", "bench/report", "bench/steady", "internal/gate", "internal/testbed", "testcluster"},
	"bench":          {"bench/figure", "bench/growth", "bench/limit", "bench/meter", "bench/observer", "bench/peer", "bench/report", "testcluster"},
}

// pure lists the packages that only compute.
var pure = []string{"internal/gate", "internal/expression", "internal/signal", "internal/gateset", "internal/fleet", "internal/descheduler", "internal/explain", "internal/lint", "internal/preview", "internal/printer", "internal/status", "internal/suggest", "internal/timeline", "internal/wait", "internal/writers"}

// clients lists what pure packages must not depend on, even indirectly.
var clients = []string{
	"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "sigs.k8s.io/controller-runtime",
}

// language lists the packages of Kubernetes' dialect of CEL. They are in the API
// server's module, but contain only types, and, for the selectors of DRA, the versions
// and feature gates by which Kubernetes extends the dialect. Expressions may depend on
// exactly these packages.
var language = []string{
	"k8s.io/apiserver/pkg/apis/cel", "k8s.io/apiserver/pkg/cel", "k8s.io/apiserver/pkg/cel/library",
	"k8s.io/apiserver/pkg/authentication/serviceaccount", "k8s.io/apiserver/pkg/authentication/user",
	"k8s.io/apiserver/pkg/authorization/authorizer",
	"k8s.io/apiserver/pkg/cel/environment", "k8s.io/apiserver/pkg/util/compatibility", "k8s.io/apiserver/pkg/util/feature",
}

// effects lists what pure packages must not import: input, output, logs,
// randomness, and clocks. They get the time as an argument.
var effects = []string{
	"os", "io", "net", "log", "math/rand", "crypto/rand",
	"k8s.io/klog/v2", "k8s.io/utils/clock",
}

// A goPackage is the output of go list for a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string // without tests
	Imports    []string
	Deps       []string
}

// roomLines is the maximum number of lines of a room, without tests. The core, which is flat
// and pure, may be larger.
const roomLines = 4000

func TestRoomsAreSmall(t *testing.T) {
	for _, p := range packages(t, "./...") {
		lines := 0
		for _, file := range p.GoFiles {
			content, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(content, []byte("\n"))
		}
		if lines > roomLines && p.ImportPath != module+"internal/gate" {
			t.Errorf("%s has %d lines, more than %d: split it", p.ImportPath, lines, roomLines)
		}
	}
}

func TestImportsAreAllowed(t *testing.T) {
	for _, p := range packages(t, "./api/...", "./internal/...", "./presets/...", "./testcluster/...", "./bench/...", "./e2e/judge/...", "./e2e/torture/...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("%s has no row in mayImport: list what it may import", name)
			continue
		}
		for _, dep := range p.Imports {
			ours, ok := strings.CutPrefix(dep, module)
			if ok && strings.HasPrefix(ours, "testcluster/") && slices.Contains(allowed, "testcluster") {
				continue // a package that may import it may import its parts
			}
			if ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s may not import %s", name, ours)
			}
		}
		for _, ours := range allowed {
			isIt := func(dep string) bool {
				return dep == module+ours || ours == "testcluster" && strings.HasPrefix(dep, module+"testcluster/")
			}
			if !slices.ContainsFunc(p.Imports, isIt) {
				t.Errorf("%s does not import %s: remove it from mayImport and docs/architecture.md", name, ours)
			}
		}
	}
}

// The package comments of the largest rooms list their files, for newcomers.
func TestPackageCommentsListFiles(t *testing.T) {
	for _, p := range packages(t, "./internal/gate", "./internal/controller") {
		comment := read(t, filepath.Join(strings.TrimPrefix(p.ImportPath, module), "doc.go"))
		listed := strings.FieldsFunc(comment, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		for _, file := range p.GoFiles {
			if file != "doc.go" && !slices.Contains(listed, file) {
				t.Errorf("%s/doc.go does not list %s", p.ImportPath, file)
			}
		}
		for _, name := range listed {
			if strings.HasSuffix(name, ".go") && !slices.Contains(p.GoFiles, name) {
				t.Errorf("%s/doc.go lists %s, which does not exist", p.ImportPath, name)
			}
		}
	}
}

// room matches a row of the page's table of rooms: its name, and what it may
// import.
var room = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .* \\|([^|]*)\\|$")

// The page's table of rooms must equal mayImport.
func TestArchitecturePageListsImports(t *testing.T) {
	page := read(t, "docs/architecture.md")
	listed := make(map[string][]string)
	for _, row := range room.FindAllStringSubmatch(page, -1) {
		rooms := strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(rooms)
		listed[row[1]] = rooms
	}
	for name, allowed := range mayImport {
		var rooms []string
		for _, other := range allowed {
			if !strings.HasPrefix(other, name+"/") {
				rooms = append(rooms, strings.TrimPrefix(strings.TrimSuffix(other, "/v1alpha1"), "internal/"))
			}
		}
		slices.Sort(rooms)
		inner := slices.ContainsFunc(slices.Collect(maps.Keys(mayImport)), func(outer string) bool { return strings.HasPrefix(name, outer+"/") })
		row, ok := listed[name]
		if !inner && (!ok || !slices.Equal(row, rooms)) { // inner ones are in the row of the outer one
			t.Errorf("docs/architecture.md: the row of %s lists %v, and mayImport %v", name, row, rooms)
		}
	}
	for name := range listed {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("docs/architecture.md has a row of %s, which does not exist", name)
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

// pureRoom matches a row of the page's table of rooms that says that the room is pure.
var pureRoom = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .*\\. Pure \\|")

func TestArchitecturePageListsPurePackages(t *testing.T) {
	var listed []string
	for _, row := range pureRoom.FindAllStringSubmatch(read(t, "docs/architecture.md"), -1) {
		listed = append(listed, row[1])
	}
	slices.Sort(listed)
	if want := slices.Sorted(slices.Values(pure)); !slices.Equal(listed, want) {
		t.Errorf("docs/architecture.md: %v are pure; the packages are %v", listed, want)
	}
}

// pathExcept matches the exception of a linter: it applies to all other files.
var pathExcept = regexp.MustCompile(`path-except: (.+)`)

// The linter must forbid clocks in all pure packages.
func TestPurePackagesReadNoClock(t *testing.T) {
	found := pathExcept.FindStringSubmatch(read(t, ".golangci.yml"))
	if found == nil {
		t.Fatal(".golangci.yml does not list the packages that may not read a clock")
	}
	forbidden := regexp.MustCompile(found[1])
	for _, name := range pure {
		if !forbidden.MatchString(name + "/file.go") {
			t.Errorf(".golangci.yml: add %s to the path-except of \"Time is an argument here\"", name)
		}
	}
}

// TestControlPlaneStaysOutside keeps the programs that nodegate ships free of
// the control plane that only tests and the demo need.
func TestControlPlaneStaysOutside(t *testing.T) {
	outside := []string{module + "testcluster", module + "demo", module + "e2e", module + "bench", module + "internal/testbed"}
	for _, p := range packages(t, "./cmd/...") {
		for _, dep := range within(p.Deps, outside) {
			t.Errorf("%s may not depend on %s", p.ImportPath, dep)
		}
	}
}

// TestAgentStaysSmall keeps the types of the API, and the clients and codecs for them, out of the
// agent, which runs on each node: most of its memory is code. These packages alone would add a
// third to it.
func TestAgentStaysSmall(t *testing.T) {
	large := []string{
		"k8s.io/api", "k8s.io/apimachinery/pkg/apis", "k8s.io/apimachinery/pkg/runtime", "k8s.io/apiserver", "k8s.io/client-go/rest",
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/cache", "sigs.k8s.io", "google.golang.org", module + "api",
	}
	for _, p := range packages(t, "./cmd/nodegate-agent") {
		for _, dep := range within(p.Deps, large) {
			t.Errorf("%s may not depend on %s", p.ImportPath, dep)
		}
	}
}

// The first program that runs on a fresh machine must be compiled within seconds.
func TestTheBuilderNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range packages(t, "./testcluster/cmd/nodegate-build") {
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

// packages returns the output of go list.
func packages(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	dependOnSources(t)
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports,Deps"}, patterns...)...)
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

// dependOnSources makes the go command run these tests again when any source has
// changed, because its cache records which files a test has accessed.
func dependOnSources(t *testing.T) {
	t.Helper()
	for _, root := range []string{"api", "bench", "testcluster", "cmd", "e2e", "internal", "presets"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			t.Fatalf("walking the sources: %v", err)
		}
	}
}
