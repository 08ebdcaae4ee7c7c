// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodegate/nodegate/testcluster/components"
)

// Init runs a machine's PID 1 and does not return, if this process was started as such.
// The main function of a program that uses machines must call it first.
func Init() {
	text := os.Getenv(specVariable)
	if text == "" {
		return
	}
	// Programs that the machine runs must not become another PID 1.
	_ = os.Unsetenv(specVariable)
	fail(runInit(text))
}

// fail ends PID 1, and the machine with it.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "PID 1 ends:", err)
	os.Exit(1)
}

func runInit(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("reading the spec: %w", err)
	}
	logs, err := s.openLogs() // on the host
	if err != nil {
		return err
	}
	if err := s.mountAll(); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if err := s.configureNetwork(); err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}
	p := &services{spec: s, logs: logs, loaded: make(chan unix.WaitStatus, 1), running: make(map[int]components.Component)}
	go func() {
		if err := p.startAll(); err != nil {
			fail(err)
		}
		p.runCommands()
	}()
	return p.reap()
}

// openLogs opens the logs of services, which are on the host.
func (s *spec) openLogs() (map[components.Component]*os.File, error) {
	logs := make(map[components.Component]*os.File)
	for _, c := range []components.Component{components.Containerd, components.Kubelet} {
		log, err := os.OpenFile(filepath.Join(s.Dir, logDir, string(c)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
		logs[c] = log
	}
	return logs, nil
}
