// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// sources are the packages of a module whose tests are run.
var sources = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"pass/p_test.go": `package pass
import "testing"
func TestPasses(t *testing.T) { t.Log("passing tests print nothing") }`,
	"fail/p_test.go": `package fail
import ("os"; "testing")
func TestMain(m *testing.M) { os.Stderr.WriteString("of TestMain\n"); os.Exit(m.Run()) }
func TestFails(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("what is wrong") }) }
func TestPasses(t *testing.T) { t.Log("passing tests print nothing") }`,
	"panics/p_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { panic("boom") }`,
	"skip/p_test.go": `package skip
import "testing"
func TestSkips(t *testing.T) { t.Skip("needs a moon") }`,
	"short/p_test.go": `package short
import "testing"
func TestCluster(t *testing.T) { if testing.Short() { t.Skip("needs a control plane: run without -short") } }`,
	"long/p_test.go": `package long
import "testing"
func TestWaits(t *testing.T) { t.Skip("it waits for minutes: run with -long") }`,
	"given/p_test.go": `package given
import "testing"
func TestBeside(t *testing.T) { t.Skip("the operator is not requested: run with -medik8s") }`,
	"broken/p_test.go": `package broken
import "testing"
func TestBroken(t *testing.T) { undefined() }`,
	"hang/p_test.go": `package hang
import ("testing"; "time")
func TestBefore(t *testing.T) {}
func TestHangs(t *testing.T) { t.Log("before it hangs"); theCulprit() }
func theCulprit() { <-time.After(time.Hour) }`,
	"stubborn/p_test.go": `package stubborn
import ("os/signal"; "syscall"; "testing"; "time")
func TestStubborn(t *testing.T) { signal.Ignore(syscall.SIGQUIT); <-time.After(time.Hour) }`,
	"empty/empty.go": "package empty\n",
	"vet/p_test.go": `package vet
import ("fmt"; "testing")
func TestPrints(t *testing.T) { fmt.Printf("%d", "text") }`,
	"detector/p_test.go": `package detector
import ("os"; "testing")
func TestOnce(t *testing.T) {
	if _, err := os.Stat("ran"); err == nil { return }
	os.WriteFile("ran", nil, 0o600)
	os.Stderr.WriteString("ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346\\n")
	os.Exit(66)
}`,
	"detectors/p_test.go": `package detectors
import ("os"; "testing")
func TestAlways(t *testing.T) { os.Stderr.WriteString("ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346\\n"); os.Exit(66) }`,
	"detectorfails/p_test.go": `package detectorfails
import ("os"; "testing")
func TestFails(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("what is wrong") }) }
func TestOther(t *testing.T) { os.Stderr.WriteString("ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346\\n"); os.Exit(66) }`,
	"detectorraces/p_test.go": `package detectorraces
import ("os"; "testing")
func TestRaces(t *testing.T) { os.Stderr.WriteString("WARNING: DATA RACE\\nThreadSanitizer: CHECK failed: tsan_rtl.cpp:346\\n"); os.Exit(66) }`,
}

// runIn runs the program in a module with the sources, and returns its exit status
// and output.
func runIn(t *testing.T, signals <-chan os.Signal, args ...string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range sources {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv("NODEGATE_SKIPS", "") // may be set for the run of this test
	out, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	status := run(append([]string{"-out=" + dir}, args...), out, signals)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, string(text)
}

// Each row is a run: its status, parts of its output in this order, and texts that it must
// not contain. The output ends with the last part. Times are replaced by T.
func TestRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go test many times: run without -short")
	}
	for name, c := range map[string]struct {
		args   []string
		status int
		want   []string
		never  []string
	}{
		"pass": {
			args:  []string{"-p=1", "./pass", "./empty"},
			want:  []string{"ok   example.com/m/pass T\n", "packages.json\n\n", "ok  \texample.com/m/pass\tT\n?   \texample.com/m/empty\t[no test files]\n"},
			never: []string{"print nothing", "FAIL"},
		},
		"fail": {
			args: []string{"./fail", "./pass"}, status: 1,
			want:  []string{"TestFails failed; its output follows", "\nok  \texample.com/m/pass\tT\n--- FAIL: TestFails (T)\n    --- FAIL: TestFails/sub (T)\n        p_test.go:4: what is wrong\nof TestMain\nFAIL\nFAIL\texample.com/m/fail\tT\nFAIL\n"},
			never: []string{"print nothing"},
		},
		"panic":    {args: []string{"./panics"}, status: 1, want: []string{"--- FAIL: TestPanics (T)\npanic: boom", "p_test.go:3", "FAIL\texample.com/m/panics\tT\nFAIL\n"}},
		"skip":     {args: []string{"./skip"}, want: []string{"skipped: example.com/m/skip TestSkips: p_test.go:3: needs a moon\n", "ok  \texample.com/m/skip\tT\n"}},
		"no skips": {args: []string{"-skips=fail", "./skip"}, status: 1, want: []string{"--- SKIP: TestSkips", "FAIL\texample.com/m/skip [skipped tests]\nFAIL\n"}},
		"short":    {args: []string{"-skips=fail", "-short", "./short"}, want: []string{"1 tests that need a control plane or take long", "ok  \texample.com/m/short\tT\n"}},
		"given":    {args: []string{"-skips=fail", "./given"}, want: []string{"1 tests beside a program that must be given (run with -medik8s)", "ok  \texample.com/m/given\tT\n"}},
		"long":     {args: []string{"-skips=fail", "./long"}, want: []string{"1 tests that wait for minutes (run with -long)", "ok  \texample.com/m/long\tT\n"}},
		"broken":   {args: []string{"./broken"}, status: 1, want: []string{"undefined: undefined", "FAIL\texample.com/m/broken [build failed]\nFAIL\n"}},
		"hang": {
			args: []string{"-silence=15s", "./hang", "./pass"}, status: 1,
			want: []string{
				"no test event for 15s; running: TestHangs (", "sending SIGQUIT", "ok  \texample.com/m/pass\tT\n",
				"--- FAIL: TestHangs (T)\n    did not end before the test binary did\n    p_test.go:4: before it hangs\n", "SIGQUIT: quit", "hang.theCulprit",
				"no test event for 15s; running: TestHangs (", "FAIL\texample.com/m/hang\tT\nFAIL\n",
			},
			never: []string{"FAIL: TestBefore"},
		},
		"stubborn": {args: []string{"-silence=15s", "./stubborn"}, status: 1, want: []string{"running: TestStubborn (", "signal: killed", "FAIL\texample.com/m/stubborn\tT\nFAIL\n"}},
		"detector": {
			args:  []string{"./detector", "./pass"},
			want:  []string{"the race detector itself failed (ThreadSanitizer: CHECK failed); running once more: example.com/m/detector\n", "ran twice, because the race detector itself failed: example.com/m/detector\n", "packages-again.json\n\n", "ok  \texample.com/m/pass\tT\nok  \texample.com/m/detector\tT\n"},
			never: []string{"FAIL\t"},
		},
		"detector fails again": {args: []string{"./detectors"}, status: 1, want: []string{"running once more: example.com/m/detectors\n", "--- FAIL: TestAlways (T)\n", "ThreadSanitizer: CHECK failed", "FAIL\texample.com/m/detectors\tT\nFAIL\n"}},
		"detector fails after a test": {
			args: []string{"./detectorfails"}, status: 1,
			want:  []string{"--- FAIL: TestFails (T)\n    --- FAIL: TestFails/sub (T)\n        p_test.go:3: what is wrong\n", "ThreadSanitizer: CHECK failed", "FAIL\texample.com/m/detectorfails\tT\nFAIL\n"},
			never: []string{"once more"},
		},
		"detector fails after a race": {args: []string{"./detectorraces"}, status: 1, want: []string{"WARNING: DATA RACE", "FAIL\texample.com/m/detectorraces\tT\nFAIL\n"}, never: []string{"once more"}},
		"no package":                  {args: []string{"./nowhere"}, status: 1, want: []string{"FAIL\t./nowhere [setup failed]\nFAIL\n"}},
		"unknown flag":                {args: []string{"./pass", "--", "-nonsense"}, status: 1, want: []string{"flag provided but not defined: -nonsense", "FAIL\texample.com/m/pass\tT\nFAIL\n"}},
		"more flags":                  {args: []string{"-run=Nothing", "./pass", "--", "-cpu=1"}, want: []string{"ok  \texample.com/m/pass\tT [no tests to run]\n"}},
		"no vet":                      {args: []string{"-vet=off", "./vet"}, want: []string{"ok  \texample.com/m/vet\tT\n"}},
		"no part":                     {args: []string{"nonsense"}, status: 2},
		"both":                        {args: []string{"quick", "./pass"}, status: 2},
		"no skip mode":                {args: []string{"-skips=perhaps", "./pass"}, status: 2},
	} {
		t.Run(name, func(t *testing.T) {
			status, output := runIn(t, nil, c.args...)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			check(t, output, c.want, c.never)
		})
	}
}

// The script that tests several versions of Kubernetes passes only flags that exist.
func TestVersionsScript(t *testing.T) {
	script, err := os.ReadFile("../test-versions.sh")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`bin/run-tests (.*) "\$@"; then`).FindSubmatch(script)
	if line == nil {
		t.Fatal("the script does not run bin/run-tests")
	}
	c, err := parseArgs(append(strings.Fields(string(line[1])), "-race", "./a"))
	if err != nil || !slices.Equal(c.args, []string{"./a"}) {
		t.Errorf("parsing the arguments %s: %+v, %v", line[1], c, err)
	}
}

var times = regexp.MustCompile(`\b[0-9]+\.[0-9]+s\b|\(cached\)`)

func check(t *testing.T, output string, want, never []string) {
	t.Helper()
	rest := times.ReplaceAllString(output, "T")
	for _, part := range never {
		if strings.Contains(rest, part) {
			t.Errorf("the output contains %q", part)
		}
	}
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("the output does not continue with %q", part)
			break
		}
		rest = after
	}
	if rest != "" && len(want) > 0 {
		t.Errorf("the output continues with %q", rest)
	}
	if t.Failed() {
		t.Logf("the output:\n%s", output)
	}
}

// Ctrl-C ends the tests at once. Their output is not lost.
func TestInterrupt(t *testing.T) {
	signals := make(chan os.Signal, 1)
	go func() { signals <- os.Interrupt }()
	// The signal may arrive while the tests are compiled or while they run.
	status, output := runIn(t, signals, "./hang")
	if status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d\n%s", status, output)
	}
}

// Under nohup, a closed terminal does not end the tests.
func TestHangupIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	signals := make(chan os.Signal, 1)
	defer signal.Stop(signals)
	if notify(signals); !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP is not ignored any more")
	}
}

// The output contains the tests that are running when the signal arrives.
func TestInterruptOfTests(t *testing.T) {
	signals := make(chan os.Signal)
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STARTED", started)
	sources["waits/p_test.go"] = `package waits
import ("os"; "testing"; "time")
func TestWaits(t *testing.T) {
	os.WriteFile(os.Getenv("STARTED"), []byte("x"), 0o600)
	<-time.After(time.Hour)
}`
	defer delete(sources, "waits/p_test.go")
	go func() {
		if _, err := os.ReadFile(started); err == nil { // until the test has written
			signals <- os.Interrupt
		}
	}()
	status, output := runIn(t, signals, "./waits", "--", "-v")
	if status != 130 {
		t.Errorf("status %d", status)
	}
	check(t, output, []string{"--- FAIL: TestWaits (T)\n", "signal: interrupt\n", "FAIL\texample.com/m/waits\tT\ninterrupted (interrupt): packages without a line above have not been tested\nFAIL\n"}, nil)
}
