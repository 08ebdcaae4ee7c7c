// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// build makes sure that the named programs are in the cache and returns their
// paths. Processes that build the same module at the same time wait for each
// other; a program appears in the cache whole or not at all.
func (m *module) build(ctx context.Context, programs []string, progress *progress) (map[string]string, error) {
	if len(programs) == 0 {
		return nil, nil
	}
	root, err := cacheRoot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, m.key())
	paths := map[string]string{}
	for _, program := range programs {
		paths[program] = filepath.Join(dir, program)
	}
	if len(absent(paths)) == 0 {
		markUsed(dir)
		return paths, nil
	}
	what := strings.Join(programs, ", ")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("building %s: %w", what, err)
	}
	lock, err := lockFile(ctx, filepath.Join(dir, "lock"), func() {
		progress.line("waiting for another process that builds %s", what)
	})
	if err != nil {
		return nil, fmt.Errorf("building %s: waiting for another build: %w", what, err)
	}
	defer lock.Close()
	// Whoever had the lock before may have built them.
	missing := absent(paths)
	if len(missing) == 0 {
		return paths, nil
	}
	if err := m.compile(ctx, dir, missing, progress); err != nil {
		return nil, fmt.Errorf("building %s: %w", what, err)
	}
	prune(root)
	return paths, nil
}

// absent returns the names of the programs that do not exist, sorted.
func absent(paths map[string]string) []string {
	var names []string
	for name, file := range paths {
		if _, err := os.Stat(file); err != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// compile builds the programs into the cache directory dir, whose lock the
// caller holds.
func (m *module) compile(ctx context.Context, dir string, programs []string, progress *progress) error {
	compiler, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("no go command found: install Go (https://go.dev/dl) and have it on PATH, "+
			"or set $%s to a directory with ready-made programs", assetsVariable)
	}
	work := filepath.Join(dir, "work")
	// A build that was killed leaves its directory; the lock says it is dead.
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := m.write(work); err != nil {
		return err
	}
	out := filepath.Join(work, "bin")
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", m.ldflags, "-o", out + "/"}
	for _, program := range programs {
		args = append(args, m.packages[program])
	}
	cmd := exec.Command(compiler, args...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "PWD="+work,
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if err := runCompiler(ctx, cmd, strings.Join(programs, ", "), progress); err != nil {
		return err
	}
	for _, program := range programs {
		if err := os.Rename(filepath.Join(out, executable(m.packages[program])), filepath.Join(dir, program)); err != nil {
			return err
		}
	}
	return nil
}

// write writes the module into a new directory.
func (m *module) write(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), m.mod, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), m.sum, 0o644)
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// executable returns the file name that go build gives a main package: the
// last element of its path that is not a major version.
func executable(pkg string) string {
	if base := path.Base(pkg); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(pkg))
}

// runCompiler runs go build -v and reports progress. It kills the build, with
// all the compilers it started, when ctx ends.
func runCompiler(ctx context.Context, cmd *exec.Cmd, what string, progress *progress) error {
	group, err := newProcessGroup()
	if err != nil {
		return err
	}
	defer group.kill()
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	progress.line("building %s from source: minutes the first time, then cached", what)
	start := time.Now()
	if err := group.start(cmd); err != nil {
		return fmt.Errorf("running go build: %w", err)
	}
	stop := context.AfterFunc(ctx, group.kill)
	defer stop()
	state := followCompiler(output, func(state compilerState) {
		progress.update("building %s: %s, %s", what, state, time.Since(start).Round(time.Second))
	})
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go build: %w:\n%s", err, indent(state.messages))
	}
	progress.line("built %s: %s, %s", what, state, time.Since(start).Round(time.Second))
	return nil
}

// compilerState is what the output of go build -v says so far.
type compilerState struct {
	modules  int      // downloaded
	packages int      // compiled, not found in Go's build cache
	messages []string // the last lines of everything else: errors
}

func (s compilerState) String() string {
	if s.modules > 0 {
		return fmt.Sprintf("%d modules downloaded, %d packages compiled", s.modules, s.packages)
	}
	return fmt.Sprintf("%d packages compiled", s.packages)
}

// add takes note of a line of output. A package that is being compiled is
// named on a line of its own.
func (s *compilerState) add(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		s.modules++
	case strings.ContainsAny(line, " :"):
		s.messages = append(s.messages, line)
		s.messages = s.messages[max(0, len(s.messages)-lastLines):]
	case line != "":
		s.packages++
	}
}

// followCompiler reads go build's output to its end, and reports about once a
// second.
func followCompiler(output io.Reader, report func(compilerState)) (state compilerState) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
		// Whatever is too long for the scanner is of no interest, but must
		// not block the compiler.
		_, _ = io.Copy(io.Discard, output)
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return state
			}
			state.add(line)
		case <-ticker.C:
			report(state)
		}
	}
}
