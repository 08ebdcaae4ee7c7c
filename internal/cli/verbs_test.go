// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nodegate/nodegate/internal/cli/clitest"
)

// verbArgs contains for each verb a command line for which it has something to do.
var verbArgs = map[string]string{
	"close":     "close n1 --gate=agent --for=1h --reason=x",
	"convert":   "convert tainter FILE.toml",
	"lint":      "lint",
	"open":      "open n1 --gate=agent --for=1h --reason=x",
	"preview":   "preview -f FILE.yaml",
	"release":   "release --all",
	"report":    "report",
	"reset":     "reset n1 --gate=agent",
	"status":    "status",
	"suggest":   "suggest",
	"timeline":  "timeline n1",
	"tolerate":  "tolerate --all",
	"uninstall": "uninstall",
	"wait":      "wait n1 --timeout=0",
	"why":       "why n1",
}

// verb returns the command line of a verb, with files that exist.
func verb(t *testing.T, name string) []string {
	t.Helper()
	args, known := verbArgs[name]
	if !known {
		t.Fatalf("verbArgs has no command line for %q", name)
	}
	dir := t.TempDir()
	for file, text := range map[string]string{
		"FILE.yaml": agentGate,
		"FILE.toml": "[[reconciler.matchers]]\ntaint = { effect = \"NoSchedule\", key = \"example.com/disk\", value = \"bad\" }\nconditions = [{ type = \"DiskPressure\", status = \"True\" }]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Fields(strings.ReplaceAll(args, "FILE", filepath.Join(dir, "FILE")))
}

// verbs returns all verbs in alphabetical order.
func verbs() []*cobra.Command {
	return slices.DeleteFunc(Command().Commands(), func(c *cobra.Command) bool { return c.GroupID == "" })
}

// Every verb that changes something has a dry run: --dry-run=client sends no writes,
// and --dry-run=server sends only writes that the API server does not persist. Other
// verbs change nothing.
func TestEveryVerbThatChangesHasADryRun(t *testing.T) {
	steering := 0
	for _, v := range verbs() {
		t.Run(v.Name(), func(t *testing.T) {
			a := newAPIServer(t, smallCluster())
			ask := func(args ...string) []changeRequest {
				code, out, err := a.run(t, append(verb(t, v.Name()), args...)...)
				if code == exitError {
					t.Errorf("exit status %d:\n%s%s", code, out, err)
				}
				return a.written()
			}
			flag := v.Flags().Lookup("dry-run")
			if v.GroupID != groupChange {
				if writes := ask(); flag != nil || len(writes) > 0 {
					t.Errorf("the verb is not in the group of those that change nodes, but has --dry-run=%v, and writes %v", flag, writes)
				}
				return
			}
			steering++
			if flag == nil || flag.DefValue != dryRunNone {
				t.Fatal("the verb has no --dry-run, or its default is not none")
			}
			if writes := ask("--dry-run=client"); len(writes) > 0 {
				t.Errorf("--dry-run=client sends %v", writes)
			}
			writes := ask("--dry-run=server")
			if len(writes) == 0 {
				t.Error("--dry-run=server sends no writes to the API server")
			}
			for _, w := range writes {
				if !w.dry {
					t.Errorf("--dry-run=server sends %v", w)
				}
			}
		})
	}
	if steering < 5 {
		t.Errorf("only %d verbs that change something were found", steering)
	}
}

// A badCluster is a cluster with a problem.
type badCluster struct {
	name string
	// has modifies the objects of the cluster, and refuse rejects requests.
	has    func(map[string]string)
	refuse func(http.ResponseWriter, *http.Request) bool
	args   []string
}

var badClusters = []badCluster{
	{name: "forbidden", refuse: func(w http.ResponseWriter, r *http.Request) bool {
		refusal(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: User \"eve\" cannot do that", r.URL.Path))
		return true
	}},
	{name: "unauthorized", refuse: func(w http.ResponseWriter, _ *http.Request) bool {
		refusal(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return true
	}},
	{name: "no-definition", has: func(objects map[string]string) {
		delete(objects, gatesPath)
		delete(objects, gatesPath+"/agent")
		bare, _, _ := strings.Cut(heldNode, "  annotations:")
		objects[nodesPath], objects[nodesPath+"/n1"] = list("v1", "NodeList", bare), bare
	}},
	{name: "no-such-node", has: func(objects map[string]string) {
		objects[nodesPath] = list("v1", "NodeList", strings.ReplaceAll(heldNode, "n1", "n2"))
		delete(objects, nodesPath+"/n1")
	}},
	{name: "no-such-gate", has: func(objects map[string]string) {
		for path, text := range objects {
			objects[path] = strings.NewReplacer("name: agent", "name: agents", "/agent:", "/agents:").Replace(text)
		}
	}},
	{name: "proxy", refuse: func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "<html>\n<body>\n<h1>502 Bad Gateway</h1>\n</body>\n</html>\n")
		return true
	}},
	{name: "timeout", args: []string{"--request-timeout=100ms"}, refuse: func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done() // the client gives up
		return true
	}},
	{name: "unreachable"},
}

// timedOut matches the messages of a request that timed out.
var timedOut = regexp.MustCompile(`": [^\n]*(?:deadline exceeded|Client\.Timeout|i/o timeout)[^\n]*`)

// testdata contains the output of each verb for each bad cluster. An error is one line,
// and after an error nothing has been changed.
func TestBadClusters(t *testing.T) {
	for _, c := range badClusters {
		t.Run(c.name, func(t *testing.T) {
			var output strings.Builder
			for _, v := range verbs() {
				if v.Name() != "convert" { // it does not use a cluster
					fmt.Fprintf(&output, "$ kubectl gate %s\n%s\n", verbArgs[v.Name()], c.ask(t, v.Name()))
				}
			}
			clitest.Golden(t, "bad/"+c.name+".txt", output.String())
		})
	}
}

// ask runs a verb, and returns its output in a form for testdata.
func (c *badCluster) ask(t *testing.T, name string) string {
	t.Helper()
	objects := smallCluster()
	if c.has != nil {
		c.has(objects)
	}
	a := newAPIServer(t, objects)
	if a.refuse = c.refuse; c.name == "unreachable" {
		a.Close()
	}
	code, out, err := a.run(t, append(verb(t, name), c.args...)...)
	if code == exitError && (out != "" || strings.Count(err, "\n") != 1) {
		t.Errorf("%s does not print a one-line error:\n%s%s", name, out, err)
	}
	if writes := a.written(); code == exitError && len(writes) > 0 {
		t.Errorf("%s failed, but wrote %v", name, writes)
	}
	if code != exitError {
		out = fmt.Sprintf("(works nevertheless, and prints %d lines)\n", strings.Count(out, "\n"))
	}
	return fmt.Sprintf("%s%sexit status %d\n", out, timedOut.ReplaceAllString(err, `": TIMED OUT`), code)
}

// Every verb that takes the name of a gate suggests the right one if it is mistyped, and
// changes nothing.
func TestMistypedGate(t *testing.T) {
	for args, code := range map[string]int{
		"close n1 --gate=agnet --for=1h --reason=x": exitError,
		"lint agnet": exitError,
		"open n1 --gate=agnet --for=1h --reason=x": exitError,
		"preview agnet --delete":                   exitError,
		"release --gate=agnet":                     exitYes, // the gate may have been deleted
		"reset n1 --gate=agnet":                    exitError,
		"status agnet":                             exitError,
		"tolerate --gate=agnet":                    exitError,
		"wait n1 --gate=agnet --timeout=0":         exitError,
	} {
		a := newAPIServer(t, smallCluster())
		got, out, err := a.run(t, strings.Fields(args)...)
		if got != code || !strings.Contains(err, `gate "agnet" not found; did you mean agent?`) || strings.Count(err, "\n") != 1 {
			t.Errorf("%s: exit status %d:\n%s%s", args, got, out, err)
		}
		if writes := a.written(); len(writes) > 0 {
			t.Errorf("%s wrote %v", args, writes)
		}
	}
}

// Gates can be named as kubectl and -o name print them. A gate that is named twice is one gate.
func TestGatesByTypeAndName(t *testing.T) {
	a := newAPIServer(t, smallCluster())
	_, printed, _ := a.run(t, "status", "-o", "name")
	if printed != "nodegate.nodegate.dev/agent\n" {
		t.Fatalf("-o name prints %q", printed)
	}
	plain := map[string]string{}
	for _, name := range []string{"agent", strings.TrimSpace(printed), "nodegate/agent", "nodegates/agent", "ng/agent", "ng/agent agent"} {
		for _, args := range []string{"status %s -o json", "lint %s -o json", "preview %s --delete -o json"} {
			code, out, err := a.run(t, strings.Fields(fmt.Sprintf(args, name))...)
			got := fmt.Sprintf("exit status %d:\n%s%s", code, presentTime.ReplaceAllString(out, "NOW"), err)
			if plain[args] == "" {
				plain[args] = got
			}
			if got != plain[args] || code == exitError {
				t.Errorf(args+": %s", name, got)
			}
		}
	}
	for arg, name := range map[string]string{"node/agent": "node/agent", "ng/": "ng/", "ng/agent/status": "agent/status"} {
		if code, out, err := a.run(t, "status", arg); code != exitError || !strings.Contains(err, fmt.Sprintf("gate %q not found", name)) {
			t.Errorf("%s: exit status %d:\n%s%s", arg, code, out, err)
		}
	}
}

// presentTime matches the time at which an output was made.
var presentTime = regexp.MustCompile(`"time": "[^"]*"`)

// The flags of every verb have other names than those of 'kubectl gate', which keep their
// meaning in all verbs.
func TestFlagsAreNotRedefined(t *testing.T) {
	root := Command()
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if root.PersistentFlags().Lookup(f.Name) != nil {
				t.Errorf("%s defines --%s again", cmd.CommandPath(), f.Name)
			}
		})
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(root)
}

// docs/kubectl-gate.md has the exit statuses and the required permissions of every
// verb, each in the table that has a column for each status, or one for the permissions.
func TestThePageHasEveryVerb(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl-gate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statuses, _ := strings.Cut(string(page), "\n## Exit statuses\n")
	statuses, rights, both := strings.Cut(statuses, "\n## Required permissions\n")
	rights, _, _ = strings.Cut(rights, "\n## ")
	for table, columns := range map[string]int{statuses: 4, rights: 2} {
		for line := range strings.Lines(table) {
			if n := strings.Count(line, "|") - 1; strings.HasPrefix(line, "| `") && n != columns {
				t.Errorf("%d columns, want %d: %s", n, columns, line)
			}
		}
	}
	for _, v := range verbs() {
		row := regexp.MustCompile("(?m)^\\|[^|]*`" + v.Name() + "`[^|]*\\|")
		if !both || !row.MatchString(statuses) {
			t.Errorf("the page has no exit statuses of %s", v.Name())
		}
		if v.Name() != "convert" && !row.MatchString(rights) { // it does not use a cluster
			t.Errorf("the page has no permissions of %s", v.Name())
		}
	}
}

// The help of release and its page contain the permissions without which it always refuses.
func TestPermissionsOfRelease(t *testing.T) {
	row := permissionsOnPage(t, "`release`")
	if !strings.Contains(row, "list gates and get the lease, unless `--force` is used, and, if the lease does not exist, get the clusterrolebinding `nodegate`") {
		t.Errorf("the page does not contain them: %s", row)
	}
	help := strings.Join(strings.Fields(newRelease(newConnection(genericiooptions.NewTestIOStreamsDiscard())).Long), " ")
	if !strings.Contains(help, "list nodegates.nodegate.dev and get the Lease nodegate, unless --force is used, and, if this Lease does not exist, get the ClusterRoleBinding nodegate") {
		t.Errorf("the help does not contain them:\n%s", help)
	}
	a := newAPIServer(t, smallCluster())
	a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.URL.Path != nodesPath && r.URL.Path != nodesPath+"/n1"
		if refused {
			refusal(w, http.StatusForbidden, "Forbidden", "this is forbidden")
		}
		return refused
	}
	if code, out, err := a.run(t, "release", "--all"); code != exitError || !strings.Contains(err, "use --force") {
		t.Errorf("without them: exit status %d:\n%s%s", code, out, err)
	}
	if code, out, err := a.run(t, "release", "--all", "--force"); code != exitYes {
		t.Errorf("with --force: exit status %d:\n%s%s", code, out, err)
	}
}

// If only observing the Lease shows whether a controller is running, release prints why it waits, not
// in its output.
func TestReleaseExplainsItsWait(t *testing.T) {
	a := newAPIServer(t, smallCluster())
	holder := "a"
	a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != leasePath {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": %q, "leaseDurationSeconds": 2, "renewTime": "1999-01-01T00:00:00.000000Z"}}`, holder)
		holder = "" // the Lease is released
		return true
	}
	if code, out, err := a.run(t, "release", "--all", "-o", "name"); code != exitYes || out != "node/n1\n" || !strings.HasPrefix(err, "waiting for 3s to find out whether nodegate is running: ") {
		t.Errorf("exit status %d:\n%s%s", code, out, err)
	}
}

// testdata contains the output of the verbs that act on the whole cluster. It is the
// same on terminals and in pipes.
func TestReleaseAndUninstall(t *testing.T) {
	for name, args := range map[string]string{
		"release.txt":             "release --all",
		"release.json":            "release --all -o json",
		"release.name.txt":        "release --all -o name",
		"release-client.txt":      "release --all --dry-run=client",
		"release-server.json":     "release --gate agent --dry-run=server -o json",
		"release-other.txt":       "release n1 --gate other",
		"uninstall.txt":           "uninstall",
		"uninstall-client.txt":    "uninstall --dry-run=client",
		"uninstall-server.txt":    "uninstall --dry-run=server",
		"uninstall-elsewhere.txt": "uninstall --dry-run=client --namespace elsewhere",
	} {
		t.Run(name, func(t *testing.T) {
			code, out, err := newAPIServer(t, smallCluster()).run(t, strings.Fields(args)...)
			clitest.Golden(t, "leave/"+name, fmt.Sprintf("%s%sexit status %d\n", out, err, code))
		})
	}
}

// If a node could not be released, the exit status and standard error show it: the last lines of the
// output are about what was removed after the node.
func TestUninstallIsIncomplete(t *testing.T) {
	a := newAPIServer(t, smallCluster())
	a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		denied := r.Method == http.MethodPatch && r.URL.Path == nodesPath+"/n1"
		if denied {
			refusal(w, http.StatusForbidden, "Forbidden", "this is forbidden")
		}
		return denied
	}
	code, out, err := a.run(t, "uninstall")
	if want := "error: some nodes could not be cleaned up: fix the errors above, and run the command again\n"; code != exitNo || err != want {
		t.Errorf("exit status %d, error %q, want %d and %q", code, err, exitNo, want)
	}
	if strings.Count(out, "node/n1 not released: ") != 2 || !strings.HasSuffix(out, "namespace/nodegate-system deleted\n") {
		t.Errorf("output:\n%s", out)
	}
}
