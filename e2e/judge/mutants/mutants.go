// SPDX-License-Identifier: Apache-2.0

// Package mutants tests the judge. It builds nodegate with one safeguard broken,
// performs the scenario with it, and expects the judge to report the violation.
package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/scenario"
	"github.com/nodegate/nodegate/testcluster"
)

// Mutant is a change of nodegate's source that breaks a safeguard.
type Mutant struct {
	// Name describes the behavior of the broken program.
	Name string
	// Edits are the changes. There is more than one if a second safeguard, such as a
	// policy, would hide that the first is broken.
	Edits []Edit
	// Breaks is the rule that the judge must report as violated.
	Breaks judge.Rule
	// Plays are the names of the plays of the scenario that are performed.
	Plays []string
}

// Edit replaces a fragment of a source file.
type Edit struct {
	// File is the path of the file, relative to the module's root. It contains Old
	// exactly once.
	File, Old, New string
}

// Find returns the mutants with these names, or all mutants if there are no names.
func Find(names ...string) ([]Mutant, error) {
	if len(names) == 0 {
		return All, nil
	}
	var found []Mutant
	for _, name := range names {
		i := slices.IndexFunc(All, func(m Mutant) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown mutant %q; e2e/judge/mutants/list.go lists all mutants", name)
		}
		found = append(found, All[i])
	}
	return found, nil
}

// Sources returns the edited files, given the directory of the module.
func (m Mutant) Sources(root string) (map[string][]byte, error) {
	sources := make(map[string][]byte)
	for _, e := range m.Edits {
		source, edited := sources[e.File]
		if !edited {
			var err error
			if source, err = os.ReadFile(filepath.Join(root, e.File)); err != nil {
				return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
			}
		}
		if n := strings.Count(string(source), e.Old); n != 1 || e.Old == e.New {
			return nil, fmt.Errorf("mutant %q: %s contains this fragment %d times, want once; correct it in e2e/judge/mutants/list.go, or remove the mutant if the safeguard no longer exists:\n%s", m.Name, e.File, n, e.Old)
		}
		sources[e.File] = []byte(strings.Replace(string(source), e.Old, e.New, 1))
	}
	return sources, nil
}

// Build builds nodegate with the mutation into a directory and returns the path of the
// program. It does not change the source tree.
func (m Mutant) Build(ctx context.Context, root, dir string) (string, error) {
	sources, err := m.Sources(root)
	if err != nil {
		return "", err
	}
	replaces := make(map[string]string)
	for file, source := range sources {
		edited := filepath.Join(dir, fmt.Sprint(len(replaces), "-", filepath.Base(file)))
		if err := os.WriteFile(edited, source, 0o600); err != nil {
			return "", fmt.Errorf("mutant %q: %w", m.Name, err)
		}
		replaces[filepath.Join(root, file)] = edited
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "nodegate")
	text, err := json.Marshal(map[string]map[string]string{"Replace": replaces})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	command := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", program, "./cmd/nodegate")
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mutant %q: %w:\n%s", m.Name, err, output)
	}
	return program, nil
}

// Outcome is the result of running a mutant.
type Outcome struct {
	Mutant
	// Caught is a violation of the expected rule; nil if the mutant survived.
	Caught *judge.Violation
	// Took is the duration of the run, without building.
	Took time.Duration
	// Err is not nil if the mutant could not be built or run.
	Err error
	// Result is the result of the run.
	Result *scenario.Result
}

// String returns the outcome as a single line.
func (o Outcome) String() string {
	switch {
	case o.Err != nil:
		return fmt.Sprintf("FAILED   %s: %v", o.Name, o.Err)
	case o.Caught == nil:
		return fmt.Sprintf("SURVIVED %s: want a violation of %s, got violations of %v", o.Name, o.Breaks, o.Result.Broken())
	}
	return fmt.Sprintf("caught   %s (%s): %s", o.Name, o.Took.Round(time.Second), o.Caught)
}

// Limits for the mutants' plays, because a broken program may never do what a play
// waits for.
const (
	patience = 10 * time.Second
	linger   = 1500 * time.Millisecond
)

// Run runs mutants one after the other on one control plane, and calls each with every
// outcome. While a mutant runs, the next one is built.
func Run(ctx context.Context, c *testcluster.Cluster, root string, list []Mutant, each func(Outcome)) error {
	dir, err := os.MkdirTemp("", "nodegate-mutants-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type built struct {
		Mutant
		program string
		err     error
	}
	programs := make(chan built)
	go func() {
		defer close(programs)
		for i, m := range list {
			b := built{Mutant: m}
			at := filepath.Join(dir, fmt.Sprint(i))
			if b.err = os.Mkdir(at, 0o700); b.err == nil {
				b.program, b.err = m.Build(ctx, root, at)
			}
			select {
			case programs <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	for b := range programs {
		o := Outcome{Mutant: b.Mutant, Err: b.err}
		if b.err == nil {
			o.run(ctx, c, b.program)
			b.err = os.Remove(b.program)
		}
		each(o)
	}
	return context.Cause(ctx)
}

func (o *Outcome) run(ctx context.Context, c *testcluster.Cluster, program string) {
	begun := time.Now()
	o.Result, o.Err = scenario.Run(ctx, scenario.Options{Cluster: c, Program: program, Patience: patience, Linger: linger, Only: o.Plays})
	o.Took = time.Since(begun)
	if o.Err != nil {
		return
	}
	if i := slices.IndexFunc(o.Result.Violations, func(v judge.Violation) bool { return v.Rule == o.Breaks }); i >= 0 {
		o.Caught = &o.Result.Violations[i]
	}
}
