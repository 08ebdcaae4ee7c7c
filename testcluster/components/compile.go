// SPDX-License-Identifier: Apache-2.0

package components

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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodegate/nodegate/testcluster/processgroup"
	"github.com/nodegate/nodegate/testcluster/progress"
)

// A job is one run of go build.
type job struct {
	name     string // for messages
	dir      string
	env      []string // in addition to this process's
	flags    []string // of go build and go list
	output   string   // go build's -o, or empty
	packages []string
	tests    bool             // compile tests, too, and link nothing
	variant  []string         // flags that distinguish packages with the same path
	done     func() error     // is called after success; may be nil
	todo     map[string]int64 // the work for each package that must be compiled
}

// job returns the job that builds programs of a set.
func (s *set) job(programs []Component) *job {
	out := filepath.Join(s.work(), "bin")
	j := &job{
		name: join(programs) + " " + s.module.version,
		dir:  s.work(),
		// Flags that affect compilation are those of the environment (GOFLAGS), so
		// that all packages have the same.
		flags:  []string{"-mod=readonly", "-buildvcs=false", "-tags=" + s.module.tags(), "-ldflags", s.module.ldflags()},
		output: out + "/",
		env:    []string{"GOWORK=off", "PWD=" + s.work(), "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH},
	}
	if ownModules[programs[0]] != "" {
		// The project may require a newer Go than this machine's. The go command downloads it,
		// even if it is configured to use only the local one.
		j.env = append(j.env, "GOTOOLCHAIN=auto")
	}
	for _, c := range programs {
		j.packages = append(j.packages, mainPackages[c])
	}
	j.done = func() error {
		for _, c := range programs {
			if err := os.Rename(filepath.Join(out, executable(mainPackages[c])), filepath.Join(s.dir, string(c))); err != nil {
				return err
			}
		}
		return nil
	}
	return j
}

// job returns the job that builds the source.
func (s *Source) job() *job {
	return &job{name: s.Name, dir: s.Dir, flags: s.Flags, output: s.Output, packages: s.Packages, tests: s.Tests, variant: s.Flags}
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

// compile runs the jobs one after another, so that packages that several of them
// need are compiled once.
func compile(ctx context.Context, jobs []*job, p *progress.Progress) error {
	tool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("building %s: no go command found: install Go (https://go.dev/dl) and add it to PATH, "+
			"or set $%s to a directory with the programs", jobs[0].name, assetsVariable)
	}
	c := &compiler{tool: tool, progress: p}
	if err := c.listAll(ctx, jobs); err != nil {
		return err
	}
	c.begin = time.Now()
	for _, j := range jobs {
		if err := c.build(ctx, j); err != nil {
			return fmt.Errorf("building %s: %w", j.name, err)
		}
	}
	if len(c.estimate.packages) > 0 {
		p.Line("%s", c.estimate.summary(time.Since(c.begin)))
	}
	return nil
}

// listAll determines what must be compiled and downloads missing modules, for all
// jobs at the same time.
func (c *compiler) listAll(ctx context.Context, jobs []*job) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.progress.Update("listing packages and downloading modules")
	var wait sync.WaitGroup
	for _, j := range jobs {
		wait.Go(func() {
			var err error
			if j.todo, err = c.list(ctx, j); err != nil {
				cancel(fmt.Errorf("building %s: %w", j.name, err)) // the first one counts
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, j := range jobs {
		c.estimate.add(j.todo)
	}
	return nil
}

// A compiler runs the go command.
type compiler struct {
	tool     string
	progress *progress.Progress
	begin    time.Time
	estimate estimate
}

// command returns a go command for the job.
func (c *compiler) command(j *job, arguments ...string) *exec.Cmd {
	cmd := exec.Command(c.tool, arguments...)
	cmd.Dir = j.dir
	cmd.Env = append(append(tuning(runtime.NumCPU()), os.Environ()...), j.env...)
	return cmd
}

// fewProcessors is the largest number of processors for which each compiler uses
// one thread.
const fewProcessors = 4

// tuning returns environment variables that make compiling cheaper. The compilers and
// linkers collect garbage at three times the memory in use instead of twice: rarer
// collections need more memory, and first uses of memory cost more than they save. On a
// machine with few processors, each compiler uses one thread, because simultaneous
// compilers keep all processors busy. The user's own settings take precedence, because
// they come later in the environment.
func tuning(processors int) []string {
	variables := []string{"GOGC=200"}
	if processors <= fewProcessors {
		variables = append(variables, "GOMAXPROCS=1")
	}
	return variables
}

// arguments returns the command that compiles the job's packages. With -export, go
// list compiles what it lists.
func (j *job) arguments() []string {
	arguments := []string{"build"}
	if j.tests {
		arguments = []string{"list", "-e", "-export", "-test", "-deps"}
	}
	arguments = append(arguments, "-v", "-p", strconv.Itoa(runtime.NumCPU()))
	arguments = append(arguments, j.flags...)
	if j.output != "" {
		arguments = append(arguments, "-o", j.output)
	}
	return append(arguments, j.packages...)
}

// key returns the name under which the estimate counts a package of the job. The
// same package with other flags has another key.
func (j *job) key(pkg string) string {
	return strings.Join(append([]string{pkg}, j.variant...), " ")
}

// build compiles the packages of one job.
func (c *compiler) build(ctx context.Context, j *job) error {
	begin := time.Now()
	if len(j.todo) > 0 {
		c.progress.Line("building %s: %s", j.name, c.estimate.text(time.Since(c.begin)))
	}
	log := buildLog{compiled: func(pkg string) {
		key := j.key(pkg)
		if j.tests && c.estimate.packages[key] {
			return // a variant of the package for a test, which has the same name
		}
		c.estimate.compiled(key)
	}}
	arguments := j.arguments()
	err := c.run(ctx, c.command(j, arguments...), log.add, func() {
		c.progress.Update("%s: %s", c.estimate.text(time.Since(c.begin)), j.name)
	})
	if err != nil {
		return fmt.Errorf("go %s: %w:\n%s", arguments[0], err, indent(log.messages))
	}
	if j.done != nil {
		if err := j.done(); err != nil {
			return err
		}
	}
	for key := range j.todo { // including what another process has compiled in the meantime
		c.estimate.finish(key)
	}
	if log.packages > 0 || j.done != nil { // linking prints nothing
		c.progress.Line("built %s in %s", j.name, time.Since(begin).Round(time.Second))
	}
	return nil
}

// run runs a command, calls line for each line of its standard error, and tick
// about once a second. It kills the command, with all the processes that it
// started, when ctx ends.
func (c *compiler) run(ctx context.Context, cmd *exec.Cmd, line func(string), tick func()) error {
	group, err := processgroup.New()
	if err != nil {
		return err
	}
	defer group.Kill()
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := group.Start(cmd); err != nil {
		return fmt.Errorf("running %s: %w", c.tool, err)
	}
	stop := context.AfterFunc(ctx, group.Kill)
	defer stop()
	follow(output, line, tick)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// follow reads output to its end, line by line, and calls tick about once a
// second. It makes all calls from one goroutine.
func follow(output io.Reader, line func(string), tick func()) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
		// Lines that are too long for the scanner are ignored, but must not block
		// the compiler.
		_, _ = io.Copy(io.Discard, output)
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case text, ok := <-lines:
			if !ok {
				return
			}
			line(text)
		case <-ticker.C:
			tick()
		}
	}
}

// lastLines is the number of the go command's messages that an error shows.
const lastLines = 20

// A buildLog is what go build -v has written so far.
type buildLog struct {
	packages int              // compiled, because Go's build cache did not have them
	messages []string         // the last lines of everything else: errors
	compiled func(pkg string) // is called with each package that is compiled
}

// add records a line of output. A package that is being compiled is named on a
// line of its own.
func (l *buildLog) add(line string) {
	switch {
	case line == "" || strings.HasPrefix(line, "go: downloading "):
	case strings.ContainsAny(line, " :"):
		l.messages = append(l.messages, line)
		l.messages = l.messages[max(0, len(l.messages)-lastLines):]
	default:
		l.packages++
		if l.compiled != nil {
			l.compiled(line)
		}
	}
}

func indent(lines []string) string {
	if len(lines) == 0 {
		return "  (nothing)"
	}
	return "  " + strings.Join(lines, "\n  ")
}
