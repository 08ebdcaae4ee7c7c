// SPDX-License-Identifier: Apache-2.0

// Package logind follows announcements of shutdowns by systemd-logind, and delays shutdowns.
package logind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
)

// Names on the bus.
// Source: https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.login1.html
const (
	Name      = "org.freedesktop.login1"
	Path      = "/org/freedesktop/login1"
	Interface = "org.freedesktop.login1.Manager"
	// Announcement is the signal that a shutdown begins or, with false, is cancelled.
	Announcement = "PrepareForShutdown"
	// Preparing is the property that reports whether a shutdown has begun.
	Preparing = "PreparingForShutdown"
)

// Socket is the socket of the system bus.
const Socket = "/run/dbus/system_bus_socket"

// Follow calls announced with whether a shutdown has begun: immediately, and whenever logind
// announces that one begins or is cancelled. A shutdown waits until announced has returned, but no
// longer than logind allows (InhibitDelayMaxSec, 5 s by default). who is shown to users by
// 'systemd-inhibit --list'.
//
// Follow returns nil when the context ends, and an error if the bus or logind cannot be used.
func Follow(ctx context.Context, socket, who string, announced func(ctx context.Context, shutdown bool)) error {
	bus, err := dbus.Connect("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connecting to the bus: %w", err)
	}
	defer bus.Close()
	// The signal is subscribed to before the state is read, so that no change is missed.
	err = bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(Path), dbus.WithMatchInterface(Interface), dbus.WithMatchMember(Announcement))
	if err != nil {
		return fmt.Errorf("subscribing to announcements: %w", err)
	}
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	f := &follower{manager: bus.Object(Name, Path), who: who, announced: announced}
	defer f.release()
	if err := f.begin(ctx); err != nil {
		return err
	}
	for {
		select {
		case signal, open := <-signals:
			if !open {
				return errors.New("the bus has closed the connection")
			}
			if err := f.receive(ctx, signal); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// A follower holds a lock that delays shutdowns, except while a shutdown continues.
type follower struct {
	manager   dbus.BusObject
	who       string
	announced func(ctx context.Context, shutdown bool)
	lock      *os.File
}

// begin reports the current state.
func (f *follower) begin(ctx context.Context) error {
	var preparing dbus.Variant
	if err := f.manager.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, Interface, Preparing).Store(&preparing); err != nil {
		return fmt.Errorf("reading logind's property %s: %w", Preparing, err)
	}
	shutdown, _ := preparing.Value().(bool)
	return f.report(ctx, shutdown)
}

// receive handles a signal. Others than the announcement are not subscribed to, but the bus also
// sends those that concern the connection itself.
func (f *follower) receive(ctx context.Context, signal *dbus.Signal) error {
	if signal.Name != Interface+"."+Announcement || len(signal.Body) != 1 {
		return nil
	}
	shutdown, _ := signal.Body[0].(bool)
	return f.report(ctx, shutdown)
}

// report takes the lock before it reports that no shutdown continues, so that none can begin
// unnoticed, and releases it afterwards if one does.
func (f *follower) report(ctx context.Context, shutdown bool) error {
	if !shutdown {
		if err := f.acquire(ctx); err != nil {
			return err
		}
	}
	f.announced(ctx, shutdown)
	if shutdown {
		f.release()
	}
	return nil
}

// acquire takes the lock, unless it is held.
func (f *follower) acquire(ctx context.Context) error {
	if f.lock != nil {
		return nil
	}
	var fd dbus.UnixFD
	call := f.manager.CallWithContext(ctx, Interface+".Inhibit", 0, "shutdown", f.who, "Close gates before the node stops", "delay")
	if err := call.Store(&fd); err != nil {
		return fmt.Errorf("delaying shutdowns: %w", err)
	}
	f.lock = os.NewFile(uintptr(fd), "lock")
	return nil
}

// release lets a shutdown continue.
func (f *follower) release() {
	if f.lock != nil {
		_ = f.lock.Close() // a copy of the end of a pipe, which has no data to lose
		f.lock = nil
	}
}
