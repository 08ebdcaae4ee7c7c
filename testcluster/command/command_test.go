// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// mainVariable is the environment variable that makes this test binary a program that sends
// SIGHUP to itself.
const mainVariable = "NODEGATE_TEST_COMMAND_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) == "" {
		os.Exit(m.Run())
	}
	Main("test", func(ctx context.Context, _ []string) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		if signal.Ignored(syscall.SIGHUP) {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// A closed terminal interrupts a program, unless the program was started by nohup, which ignores
// SIGHUP.
func TestHangup(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	for name, c := range map[string]struct {
		// ignore specifies whether the program inherits that SIGHUP is ignored.
		ignore bool
		want   int
	}{
		"as usual": {false, 130},
		"by nohup": {true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP); c.ignore {
				signal.Ignore(syscall.SIGHUP)
			}
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env = append(os.Environ(), mainVariable+"=1")
			output, err := program.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if status := program.ProcessState.ExitCode(); status != c.want {
				t.Errorf("exit status %d, want %d:\n%s", status, c.want, output)
			}
		})
	}
}
