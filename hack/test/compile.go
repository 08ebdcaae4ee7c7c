// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// compile downloads and compiles what the invocations need before the first test
// runs, so that no test shares the machine with a compiler, or waits for one.
// 'go list -export' compiles test packages without linking them; linking
// happens in go test, which keeps no linked test binaries.
//
// What does not compile is reported by go test, with the tests' results.
func (r *runner) compile(ctx context.Context, invocations []*invocation, commands [][]string, root string) {
	c := &compilation{runner: r, began: time.Now()}
	for _, i := range invocations {
		args := []string{"list", "-v", "-e", "-export", "-test", "-deps"}
		if isOn(i.flags, "-race") {
			args = append(args, "-race")
		}
		for _, p := range i.packages {
			args = append(args, p.path)
		}
		c.run(ctx, i.dir, "the tests", args)
	}
	for _, command := range commands {
		c.run(ctx, root, "what they run: go "+strings.Join(command, " "), command)
	}
	r.screen.progress("")
	if c.count > 0 {
		r.screen.write(fmt.Sprintf("compiled %d packages in %s\n", c.count, seconds(time.Since(c.began))))
	}
}

type compilation struct {
	*runner
	began time.Time
	count int
	// latest is the package that was compiled last.
	latest string
}

// run runs a go command that prints on stderr what it compiles.
func (c *compilation) run(ctx context.Context, dir, what string, args []string) {
	if c.interrupted != nil {
		return
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	inGroup(command)
	stderr, err := command.StderrPipe()
	if err != nil || command.Start() != nil {
		return
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, stderr)
	}()
	c.latest = what
	c.follow(command.Process.Pid, lines)
	_ = command.Wait()
}

// follow shows progress until there are no more lines.
func (c *compilation) follow(pid int, lines <-chan string) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return
			}
			if strings.HasPrefix(line, "go: ") {
				c.latest = line
			} else if !strings.ContainsAny(line, " :#") {
				c.latest, c.count = line, c.count+1
			}
		case s := <-c.signals:
			c.interrupted = s
			send(-pid, syscall.SIGKILL)
		case <-tick.C:
			c.screen.progress(fmt.Sprintf("compiling: %s, %d packages, %s", seconds(time.Since(c.began)), c.count, c.latest))
		}
	}
}

// findRoot returns the directory of this repository's main module if it is where
// the program runs, and where it runs otherwise.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+module+"\n") {
			return at, nil
		}
	}
	return dir, nil
}
