// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// program is a neighbour that runs until the test ends.
type program struct {
	*site
	command *exec.Cmd
	logFile string
	done    chan struct{} // closed when it has ended
	stopped sync.Once
}

// kubeconfig returns a kubeconfig file of a ServiceAccount.
func (s *site) kubeconfig(namespace, account string) string {
	s.Helper()
	config, err := s.cluster.ServiceAccount(s.Context(), namespace, account)
	s.must(err)
	path := filepath.Join(s.TempDir(), account+".kubeconfig")
	s.must(testcluster.WriteKubeconfig(path, config))
	return path
}

// start starts the neighbour. It is stopped when the test ends, and must not end before.
func (s *site) start(environment []string, arguments ...string) *program {
	s.Helper()
	s.started++
	name := fmt.Sprintf("%s-%d.log", strings.ReplaceAll(s.Name(), "/", "-"), s.started)
	p := &program{site: s, logFile: filepath.Join(s.cluster.Dir(), "logs", name), done: make(chan struct{})}
	log, err := os.Create(p.logFile)
	s.must(err)
	defer log.Close()
	p.command = exec.Command(s.neighbour, arguments...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.TempDir()}, environment...)
	s.must(s.cluster.StartProcess(p.command))
	go func() {
		_ = p.command.Wait() // the log contains the reason
		close(p.done)
	}()
	s.Cleanup(p.stop)
	return p
}

// stop ends the program, which must not have ended by itself.
func (p *program) stop() { p.stopped.Do(p.end) }

func (p *program) end() {
	select {
	case <-p.done:
		p.Errorf("%s ended: see %s", p.command.Path, p.logFile)
		return
	default:
	}
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended in the meantime
	select {
	case <-p.done:
	case <-time.After(await.Silence):
		_ = p.command.Process.Kill()
		<-p.done
	}
}

// logged returns how often the program's log contains a text.
func (p *program) logged(text string) int {
	p.Helper()
	log, err := os.ReadFile(p.logFile)
	p.must(err)
	return strings.Count(string(log), text)
}

// awaitLogged waits until the program has logged a text n more times.
func (p *program) awaitLogged(text string, n int) {
	p.Helper()
	want := p.logged(text) + n
	p.eventually(fmt.Sprintf("%d lines of the log with %q", want, text), func(context.Context) error {
		select {
		case <-p.done:
			p.Fatalf("%s ended: see %s", p.command.Path, p.logFile)
		default:
		}
		if got := p.logged(text); got < want {
			return fmt.Errorf("%d lines", got)
		}
		return nil
	})
}

// awaitLine waits until the program has logged a line that contains these texts.
func (p *program) awaitLine(texts ...string) {
	p.Helper()
	p.eventually(fmt.Sprintf("a line of the log with %q", texts), func(context.Context) error {
		log, err := os.ReadFile(p.logFile)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("none of %d bytes", len(log))
	})
}

// address returns a loopback address on which no process is listening, and its port.
func (s *site) address() (address, port string) {
	s.Helper()
	address, err := freeport.Address()
	s.must(err)
	return address, address[strings.LastIndex(address, ":")+1:]
}

func (s *site) eventually(what string, check func(context.Context) error) {
	s.Helper()
	awaittest.Until(s, what, check)
}
