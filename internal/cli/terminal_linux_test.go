// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// openTerminal returns a terminal to write to, and a reader of what it displays.
func openTerminal(t *testing.T) (terminal, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	var number, lock uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &lock} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return terminal, screen
}

// On a terminal, the output contains symbols and box-drawing characters. In a pipe, it
// is ASCII without progress.
func TestTerminalsAndPipes(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	a := newAPIServer(t, smallCluster())
	for _, args := range []string{"why n1", "timeline n1"} {
		ask := func(out io.Writer) {
			var errs bytes.Buffer
			if code := Execute(t.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: &errs}, append(strings.Fields(args), "--server", a.URL)); code == exitError {
				t.Fatal(errs.String())
			}
		}
		terminal, screen := openTerminal(t)
		shown := make(chan string)
		go func() {
			text, _ := io.ReadAll(screen) // fails at the end, when the terminal is closed
			shown <- string(text)
		}()
		ask(terminal)
		if err := terminal.Close(); err != nil {
			t.Fatal(err)
		}
		if text := <-shown; !strings.ContainsAny(text, "✗") {
			t.Errorf("%s prints to a terminal:\n%s", args, text)
		}
		var piped bytes.Buffer
		ask(&piped)
		if strings.ContainsFunc(piped.String(), func(r rune) bool { return r > '~' }) || !strings.Contains(piped.String(), "-") {
			t.Errorf("%s prints to a pipe:\n%s", args, piped.String())
		}
	}
}
