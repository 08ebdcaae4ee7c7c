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

// An estimate predicts how long compilation takes. The work for a package grows
// with its source and, because the compiler reads the declarations of imported
// packages, with the number of packages that it depends on. Work is measured in
// bytes of source.
type estimate struct {
	todo     map[string]int64 // work by job.key
	total    int64
	done     int64
	packages map[string]bool // that were compiled
	twice    []string        // that were compiled more than once
}

const (
	workPerDependency = 330
	// workPerProgram is the work for linking a program.
	workPerProgram = 3_000_000

	// workPerSecond is the work per second of one processor, on the machine on
	// which the documentation's figures were measured. It is the initial guess,
	// weighted as if guessWork had been done at that rate, so that it soon
	// becomes insignificant.
	workPerSecond = 400_000
	guessWork     = 10_000_000
)

// add adds packages that must still be compiled.
func (e *estimate) add(todo map[string]int64) {
	if e.todo == nil {
		e.todo = map[string]int64{}
	}
	for pkg, work := range todo {
		if _, known := e.todo[pkg]; !known {
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

// finish records that a package needs no further work.
func (e *estimate) finish(pkg string) {
	e.done += e.todo[pkg]
	e.todo[pkg] = 0
}

// left returns the remaining time, at the average rate of the elapsed time.
func (e *estimate) left(elapsed time.Duration) time.Duration {
	guess := time.Second * guessWork / workPerSecond / time.Duration(runtime.NumCPU())
	perByte := float64(elapsed+guess) / float64(e.done+guessWork)
	return time.Duration(perByte * float64(e.total-e.done))
}

// text returns the state as human-readable text. Linking, which comes last, can take a minute.
func (e *estimate) text(elapsed time.Duration) string {
	next := "linking"
	if e.done < e.total {
		next = "about " + round(e.left(elapsed)) + " left"
	}
	return fmt.Sprintf("%d of %d packages compiled, %s", len(e.packages), len(e.todo), next)
}

// round returns the duration with the precision of an estimate.
func round(d time.Duration) string {
	if d <= 90*time.Second {
		return d.Round(10 * time.Second).String()
	}
	return fmt.Sprintf("%d minutes", int(d.Round(time.Minute).Minutes()))
}

// summary returns a human-readable summary. A package that was compiled more than
// once has different flags, or depends on different versions, in two jobs.
func (e *estimate) summary(elapsed time.Duration) string {
	times := "none of them twice"
	if len(e.twice) > 0 {
		times = fmt.Sprintf("%d of them more than once: %s", len(e.twice), strings.Join(e.twice[:min(len(e.twice), 3)], ", "))
	}
	return fmt.Sprintf("compiled %d packages in %s, %s", len(e.packages), elapsed.Round(time.Second), times)
}

// listFormat makes the go command print a line for each package that must be
// compiled: its path, its name, the number of its dependencies, its directory,
// its files.
const listFormat = `{{if .Stale}}{{.ImportPath}}{{"\t"}}{{.Name}}{{"\t"}}{{len .Deps}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "/"}}{{end}}`

// list returns the packages that must be compiled for the job. The go command
// downloads the modules that it needs.
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
		if len(fields) != 5 || j.tests && fields[1] == "main" { // a program that is not linked is always stale
			continue
		}
		name, _, _ := strings.Cut(fields[0], " ") // "p [q.test]" is p for the tests of q
		todo[j.key(name)] += work(fields)
	}
	return todo, nil
}

// work returns the work for a package, from a line in listFormat.
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
