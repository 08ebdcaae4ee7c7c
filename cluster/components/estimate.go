// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// An estimate tells how much there is to compile, and how long that takes. What
// compiling a package takes grows with its source and, because the compiler
// reads the declarations of what it imports, with the number of packages that it
// depends on. It is measured in bytes of source.
type estimate struct {
	todo     map[string]int64 // by job.key
	total    int64
	done     int64
	packages map[string]bool // that were compiled
	twice    []string        // of which more than once
}

const (
	workPerDependency = 330
	// workPerProgram is what linking takes.
	workPerProgram = 3_000_000

	// workPerSecond is how much one processor got done, on the machine that the
	// figures in the documentation are from. It is the guess to begin with, as
	// good as guessWork done at that rate, and soon has no weight any more.
	workPerSecond = 300_000
	guessWork     = 10_000_000
)

// add adds what is still to be compiled.
func (e *estimate) add(todo map[string]int64) {
	if e.todo == nil {
		e.todo = map[string]int64{}
	}
	for pkg, work := range todo {
		if _, there := e.todo[pkg]; !there {
			e.todo[pkg] = work
			e.total += work
		}
	}
}

// compiled records that a package has been compiled, or is about to be.
func (e *estimate) compiled(pkg string) {
	if e.packages == nil {
		e.packages = map[string]bool{}
	}
	if e.packages[pkg] {
		e.twice = append(e.twice, pkg)
	}
	e.packages[pkg] = true
	e.finish(pkg)
}

// finish records that nothing is left to do for a package.
func (e *estimate) finish(pkg string) {
	e.done += e.todo[pkg]
	e.todo[pkg] = 0
}

// left returns how long the rest takes if it goes on as it did for as long as
// elapsed.
func (e *estimate) left(elapsed time.Duration) time.Duration {
	guess := time.Second * guessWork / workPerSecond / time.Duration(runtime.NumCPU())
	perByte := float64(elapsed+guess) / float64(e.done+guessWork)
	return time.Duration(perByte * float64(e.total-e.done))
}

// text returns the state for people.
func (e *estimate) text(elapsed time.Duration) string {
	return fmt.Sprintf("%d of %d packages compiled, about %s left", len(e.packages), len(e.todo), round(e.left(elapsed)))
}

// round returns the duration with as many digits as an estimate deserves.
func round(d time.Duration) string {
	if d <= 90*time.Second {
		return d.Round(10 * time.Second).String()
	}
	return fmt.Sprintf("%d minutes", int(d.Round(time.Minute).Minutes()))
}

// summary returns what was done, for people. A package that was compiled more
// than once has different flags, or depends on different versions, in two jobs.
func (e *estimate) summary(elapsed time.Duration) string {
	times := "none of them twice"
	if len(e.twice) > 0 {
		times = fmt.Sprintf("%d of them more than once: %s", len(e.twice), strings.Join(e.twice[:min(len(e.twice), 3)], ", "))
	}
	return fmt.Sprintf("compiled %d packages in %s, %s", len(e.packages), elapsed.Round(time.Second), times)
}

// listFormat has the go command print a line for each package that has to be
// compiled: its path, its name, the number of its dependencies, its directory,
// its files.
const listFormat = `{{if .Stale}}{{.ImportPath}}{{"\t"}}{{.Name}}{{"\t"}}{{len .Deps}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "/"}}{{end}}`

// list returns what has to be compiled for the job. The go command downloads
// the modules that it has to look at.
func (c *compiler) list(ctx context.Context, j *job) (map[string]int64, error) {
	var stdout bytes.Buffer
	arguments := []string{"list", "-deps", "-f", listFormat}
	if j.tests {
		arguments = append(arguments, "-e", "-test")
	}
	cmd := c.command(j, append(append(arguments, j.flags...), j.packages...)...)
	cmd.Stdout = &stdout
	log := buildLog{}
	if err := c.run(ctx, cmd, log.add, func() {}); err != nil {
		return nil, fmt.Errorf("go list: %w:\n%s", err, indent(log.messages))
	}
	todo := map[string]int64{}
	for line := range strings.Lines(stdout.String()) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 5 || j.tests && fields[1] == "main" { // a program that is not linked counts as stale for ever
			continue
		}
		name, _, _ := strings.Cut(fields[0], " ") // "p [q.test]" is p for the tests of q
		todo[j.key(name)] += work(fields)
	}
	return todo, nil
}

// work returns how much there is to do for a package listed by listFormat.
func work(fields []string) int64 {
	dependencies, _ := strconv.ParseInt(fields[2], 10, 64) // as Go prints it
	sum := dependencies * workPerDependency
	for name := range strings.SplitSeq(fields[4], "/") {
		if info, err := os.Stat(filepath.Join(fields[3], name)); err == nil {
			sum += info.Size()
		}
	}
	if fields[1] == "main" {
		sum += workPerProgram
	}
	return sum
}
