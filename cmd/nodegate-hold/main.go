// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command nodegate-hold keeps pods that are bound to a node from starting while a gate with
// bypassedPods: Hold is closed there. The container runtime starts it as a plugin, and as a hook
// of each container that waits. It decides with what nodegate-agent has written.
//
//	nodegate-hold install DIR    installs the program in the runtime's directory of plugins
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/containerd/nri/pkg/api"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/hold/plugin"
)

func main() {
	hold.WithoutHugePages()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err) // the runtime reports what a hook writes here
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case os.Getenv(api.PluginNameEnvVar) != "":
		return withLog(func(log *slog.Logger) error { return runPlugin(ctx, log) })
	case len(args) == 3 && args[1] == "install": // before the hook, whose arguments begin with "-"
		return install(args[2])
	case args[0] == plugin.HookName && len(args) > 1:
		return withLog(func(log *slog.Logger) error { return runHook(ctx, args[1:], log) })
	}
	return errors.New("usage: nodegate-hold install DIR")
}

func runPlugin(ctx context.Context, log *slog.Logger) error {
	boot, err := hold.BootID(hold.BootIDFile)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p := plugin.Plugin{Store: hold.Store{Dir: hold.Dir}, Boot: boot, Uptime: hold.Uptime, Program: program, Log: log}
	return p.Run(ctx)
}

// runHook returns an error, so that the container does not start, only if it must not: arguments
// of another version of the plugin are no reason.
func runHook(ctx context.Context, args []string, log *slog.Logger) error {
	w := plugin.Waiter{Store: hold.Store{Dir: hold.Dir}, Uptime: hold.Uptime, Log: log}
	if err := w.ParseHook(args); err != nil {
		log.Error("cannot read the arguments of the hook, the pod does not wait", "err", err)
		return nil
	}
	return w.Wait(ctx)
}

// withLog calls a function with the log, and logs its error.
func withLog(do func(*slog.Logger) error) error {
	log := slog.New(slog.NewJSONHandler(logFile{path: logPath, limit: logLimit}, nil))
	err := do(log)
	if err != nil && !errors.Is(err, plugin.ErrWaits) {
		log.Error("the program has ended", "err", err)
	}
	return err
}

// install copies this program into a directory, from which the container runtime will start it
// the next time that it starts itself. The program is replaced as a whole. The copy is made in
// a directory of its own: containerd does not start if there is a program whose name is not a
// plugin's. A program that is installed already is left alone, because the disk may be full or
// read-only when the agent starts again.
func install(dir string) error {
	installed := filepath.Join(dir, plugin.Name)
	temporary := filepath.Join(dir, "nodegate-hold.tmp") // one that was interrupted is used again
	defer func() { _ = os.RemoveAll(temporary) }()       // what remains only uses space
	if isThisProgram(installed) {
		return nil
	}
	program := filepath.Join(temporary, plugin.Name)
	err := os.MkdirAll(temporary, 0o755)
	if err == nil {
		err = copySelf(program)
	}
	if err == nil {
		err = os.Rename(program, installed)
	}
	if err != nil {
		return fmt.Errorf("installing the plugin: %w", err)
	}
	return nil
}

// thisProgram is the file that this process executes.
const thisProgram = "/proc/self/exe"

// isThisProgram reports whether a file is an executable copy of this program.
func isThisProgram(path string) bool {
	file, err := os.Lstat(path)
	if err != nil || !file.Mode().IsRegular() || file.Mode().Perm()&0o100 == 0 {
		return false
	}
	installed, err := os.Open(path)
	if err != nil {
		return false
	}
	defer installed.Close()
	self, err := os.Open(thisProgram)
	if err != nil {
		return false
	}
	defer self.Close()
	return sameContent(installed, self)
}

// sameContent compares two files in parts: the container in which the program is installed may be
// limited to less memory than both need.
func sameContent(a, b io.Reader) bool {
	const part = 64 << 10
	x, y := make([]byte, part), make([]byte, part)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return ended(errA) && ended(errB)
		}
	}
}

// ended reports whether an error of io.ReadFull is the end of the file.
func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// copySelf writes this program to a file.
func copySelf(path string) error {
	self, err := os.Open(thisProgram)
	if err != nil {
		return err
	}
	defer self.Close()
	program, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(program, self)
	return errors.Join(err, program.Sync(), program.Close())
}
