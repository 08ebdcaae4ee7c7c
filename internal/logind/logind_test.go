// SPDX-License-Identifier: Apache-2.0

package logind

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/nodegate/nodegate/testcluster/await"
)

// Every process may send signals on the system bus, to all or to one connection. Those of others
// than logind are no announcements, also after logind has restarted.
func TestOnlyLogindAnnounces(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	announced := make(chan bool, 16)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Follow(ctx, socket, "test", func(_ context.Context, shutdown bool) { announced <- shutdown })
	}()
	expect := func(what string, want bool) {
		t.Helper()
		select {
		case got := <-announced:
			if got != want {
				t.Errorf("%s: the shutdown %v was announced", what, got)
			}
		case err := <-ended:
			t.Fatalf("%s: Follow has returned: %v", what, err)
		case <-time.After(await.Silence):
			t.Fatalf("%s: nothing was announced", what)
		}
	}
	expect("at the start", false)
	follower := <-l.inhibited
	stranger := connect(t, socket)
	announce(t, stranger, "", true)
	announce(t, stranger, follower, true)
	announce(t, l.bus, "", false)
	expect("after a stranger's signals", false)
	announce(t, l.bus, "", true)
	expect("a shutdown", true)

	l.stop(t)
	announce(t, stranger, follower, false)
	l = startLogind(t, socket, true)
	expect("at logind's restart", true)
	announce(t, stranger, "", true)
	announce(t, stranger, follower, true)
	announce(t, l.bus, "", false)
	expect("the cancellation", false)
	if <-l.inhibited != follower {
		t.Error("another process delays shutdowns")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// logind refuses the lock if a shutdown begins after the follower has read that there is none. The
// shutdown is announced without it.
func TestShutdownBeginsBeforeTheLock(t *testing.T) {
	socket := startBus(t)
	l := startLogind(t, socket, false)
	l.refuses.Store(true)
	announced := make(chan bool, 16)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Follow(ctx, socket, "test", func(_ context.Context, shutdown bool) { announced <- shutdown })
	}()
	select {
	case shutdown := <-announced:
		if !shutdown {
			t.Error("it was announced that there is no shutdown")
		}
	case err := <-ended:
		t.Fatalf("Follow has returned: %v", err)
	case <-time.After(await.Silence):
		t.Fatal("nothing was announced")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A fakeLogind stands in for logind on a bus.
type fakeLogind struct {
	bus       *dbus.Conn
	preparing atomic.Bool
	// refuses is true if a shutdown begins when a process asks for a lock.
	refuses atomic.Bool
	// inhibited receives the connections that delay shutdowns.
	inhibited chan string
}

func startLogind(t *testing.T, socket string, preparing bool) *fakeLogind {
	t.Helper()
	l := &fakeLogind{bus: connect(t, socket), inhibited: make(chan string, 16)}
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
	l.inhibited <- string(sender)
	return dbus.UnixFD(os.Stderr.Fd()), nil // the follower gets a copy
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
