// SPDX-License-Identifier: Apache-2.0

package logind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/nodegate/nodegate/testcluster/await"
)

// Every process may send signals on the system bus, to all or to one connection. Those of others
// than logind are no announcements, also after logind has restarted.
func TestOnlyLogindAnnounces(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	f := follow(t, socket, func(bool) {})
	f.expect(t, "at the start", false)
	follower := l.given(t).follower
	stranger := connect(t, socket)
	announce(t, stranger, "", true)
	announce(t, stranger, follower, true)
	announce(t, l.bus, "", false)
	f.expect(t, "after a stranger's signals", false)
	announce(t, l.bus, "", true)
	f.expect(t, "a shutdown", true)

	l.stop(t)
	announce(t, stranger, follower, false)
	l = startLogind(t, socket, true)
	f.expect(t, "at logind's restart", true)
	announce(t, stranger, "", true)
	announce(t, stranger, follower, true)
	announce(t, l.bus, "", false)
	f.expect(t, "the cancellation", false)
	if l.given(t).follower != follower {
		t.Error("another process delays shutdowns")
	}
	f.end(t)
}

// logind refuses the lock if a shutdown begins after the follower has read that there is none. The
// shutdown is announced without it.
func TestShutdownBeginsBeforeTheLock(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	l.refuses.Store(true)
	f := follow(t, socket, func(bool) {})
	f.expect(t, "at the start", true)
	f.end(t)
}

// A shutdown waits until its announcement has been handled, and no longer. The lock of a logind that
// has ended is released, too: the next logind gives out another.
func TestLockDelaysTheShutdown(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	var current atomic.Pointer[lock]
	f := follow(t, socket, func(shutdown bool) {
		if held := current.Load(); shutdown && held.isReleased(t, 0) {
			t.Error("the lock is released before the announcement has been handled")
		}
	})
	expectLock := func(what string) *lock {
		t.Helper()
		f.expect(t, what, false)
		held := l.given(t)
		held.leave(t)
		if held.isReleased(t, 0) {
			t.Errorf("%s: the lock is released", what)
		}
		current.Store(held)
		return held
	}
	expectReleased := func(what string, held *lock) {
		t.Helper()
		if !held.isReleased(t, await.Silence) {
			t.Fatalf("%s: the lock is not released", what)
		}
	}
	held := expectLock("at the start")
	announce(t, l.bus, "", true)
	f.expect(t, "a shutdown", true)
	expectReleased("after the announcement of a shutdown", held)
	announce(t, l.bus, "", false)
	held = expectLock("the cancellation")

	l.stop(t)
	l = startLogind(t, socket, false)
	next := expectLock("at logind's restart")
	expectReleased("at logind's restart", held)
	f.end(t)
	expectReleased("at the end", next)
}

// When the context ends, the connection to the bus ends, too. Follow returns no error, even if it
// notices the end of the connection first.
func TestFollowEnds(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	for range 20 {
		ctx, stop := context.WithCancel(t.Context())
		if err := Follow(ctx, socket, "test", func(context.Context, bool) {
			stop()
			awaitDisconnected(t, l.bus, l.given(t).follower)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDisconnected waits until a connection to the bus has ended.
func awaitDisconnected(t *testing.T, bus *dbus.Conn, name string) {
	t.Helper()
	if err := await.Until(context.Background(), "the end of connection "+name, func(context.Context) error {
		connected := false
		if err := bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&connected); err != nil || !connected {
			return err
		}
		return errors.New("it is still connected")
	}); err != nil {
		t.Error(err)
	}
}

// following is a call of Follow.
type following struct {
	announced chan bool
	ended     chan error
	stop      context.CancelFunc
}

// follow follows announcements, and calls handle with each of them before expect returns it.
func follow(t *testing.T, socket string, handle func(shutdown bool)) *following {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &following{announced: make(chan bool, 16), ended: make(chan error, 1), stop: stop}
	go func() {
		f.ended <- Follow(ctx, socket, "test", func(_ context.Context, shutdown bool) {
			handle(shutdown)
			f.announced <- shutdown
		})
	}()
	return f
}

// expect waits for the next announcement.
func (f *following) expect(t *testing.T, what string, want bool) {
	t.Helper()
	select {
	case got := <-f.announced:
		if got != want {
			t.Errorf("%s: the shutdown %v was announced", what, got)
		}
	case err := <-f.ended:
		t.Fatalf("%s: Follow has returned: %v", what, err)
	case <-time.After(await.Silence):
		t.Fatalf("%s: nothing was announced", what)
	}
}

// end ends the call of Follow.
func (f *following) end(t *testing.T) {
	t.Helper()
	f.stop()
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
}

// A lock is a pipe. The follower holds it by a copy of own, the end for writing.
type lock struct {
	follower  string // its connection
	read, own *os.File
}

// leave leaves the only copy to the follower, which must have got it.
func (l *lock) leave(t *testing.T) {
	t.Helper()
	if err := l.own.Close(); err != nil {
		t.Fatal(err)
	}
}

// isReleased reports whether the follower has closed its copy, or does so in time.
func (l *lock) isReleased(t *testing.T, within time.Duration) bool {
	t.Helper()
	released := []unix.PollFd{{Fd: int32(l.read.Fd())}} // POLLHUP is always reported
	for limit := time.Now().Add(within); ; {
		n, err := unix.Poll(released, int(max(time.Until(limit), 0).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				t.Error(err)
			}
			return n > 0
		}
	}
}

// A fakeLogind stands in for logind on a bus.
type fakeLogind struct {
	bus       *dbus.Conn
	preparing atomic.Bool
	// refuses is true if a shutdown begins when a process asks for a lock.
	refuses atomic.Bool
	// inhibited receives the locks that delay shutdowns.
	inhibited chan *lock
}

func startLogind(t *testing.T, socket string, preparing bool) *fakeLogind {
	t.Helper()
	l := &fakeLogind{bus: connect(t, socket), inhibited: make(chan *lock, 16)}
	l.preparing.Store(preparing)
	for _, exported := range []string{Interface, "org.freedesktop.DBus.Properties"} {
		if err := l.bus.Export(l, Path, exported); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := l.bus.RequestName(Name, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("the reply is %d, %v", reply, err)
	}
	return l
}

// given returns the next lock that has been given out.
func (l *fakeLogind) given(t *testing.T) *lock {
	t.Helper()
	select {
	case given := <-l.inhibited:
		return given
	case <-time.After(await.Silence):
		t.Fatal("no process has asked for a lock")
		return nil
	}
}

func (l *fakeLogind) stop(t *testing.T) {
	t.Helper()
	if err := l.bus.Close(); err != nil {
		t.Fatal(err)
	}
}

// Get is called over the bus. It returns a property.
func (l *fakeLogind) Get(_, _ string) (dbus.Variant, *dbus.Error) {
	return dbus.MakeVariant(l.preparing.Load()), nil
}

// Inhibit is called over the bus. It returns a lock, or logind's error.
// Source: method_inhibit in systemd's src/login/logind-dbus.c.
func (l *fakeLogind) Inhibit(sender dbus.Sender, _, _, _, _ string) (dbus.UnixFD, *dbus.Error) {
	if l.refuses.Load() {
		l.preparing.Store(true)
		_ = l.bus.Emit(Path, Interface+"."+Announcement, true)
		return 0, dbus.NewError(Name+".OperationInProgress", []any{"The operation inhibition has been requested for is already running"})
	}
	read, own, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fd := own.Fd() // before the test may close it
	l.inhibited <- &lock{string(sender), read, own}
	return dbus.UnixFD(fd), nil // the follower gets a copy
}

// announce sends an announcement to a destination, or to all, and returns when the bus has received
// it.
func announce(t *testing.T, bus *dbus.Conn, destination string, shutdown bool) {
	t.Helper()
	signal := &dbus.Message{Type: dbus.TypeSignal, Body: []any{shutdown}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(Path)), dbus.FieldInterface: dbus.MakeVariant(Interface),
		dbus.FieldMember: dbus.MakeVariant(Announcement), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(shutdown)),
	}}
	if destination != "" {
		signal.Headers[dbus.FieldDestination] = dbus.MakeVariant(destination)
	}
	bus.Send(signal, nil)
	if err := bus.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, socket string) *dbus.Conn {
	t.Helper()
	bus, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

// configuration is that of a bus with the default policy of the system bus. Processes may own the
// name of logind, and call it.
const configuration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
    <allow own="` + Name + `"/>
    <allow send_destination="` + Name + `"/>
  </policy>
</busconfig>
`

// startBus starts a bus, and returns its socket.
func startBus(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("it requires dbus-daemon")
	}
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "socket"), filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "dbus-daemon", "--config-file="+file, "--nofork", "--print-address")
	daemon.Stderr = os.Stderr
	address, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Wait() }) // it has been killed
	if _, err := bufio.NewReader(address).ReadString('\n'); err != nil {
		t.Fatalf("the bus does not listen: %v", err)
	}
	return socket
}
