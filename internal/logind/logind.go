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

// Names of the bus itself.
// Source: https://dbus.freedesktop.org/doc/dbus-specification.html#message-bus-messages
const (
	busName         = "org.freedesktop.DBus"
	busOwnerChanged = "NameOwnerChanged"
)

// Follow calls announced with whether a shutdown has begun: immediately, whenever logind announces
// that one begins or is cancelled, and when logind has restarted. A shutdown waits until announced
// has returned, but no longer than logind allows (InhibitDelayMaxSec, 5 s by default). who is shown
// to users by 'systemd-inhibit --list'.
//
// Follow returns nil when the context ends, and an error if the bus or logind cannot be used.
func Follow(ctx context.Context, socket, who string, announced func(ctx context.Context, shutdown bool)) error {
	err := run(ctx, socket, who, announced)
	if ctx.Err() != nil {
		return nil // it also ends the connection and each call
	}
	return err
}

// run is Follow, except that it may return an error when the context ends.
func run(ctx context.Context, socket, who string, announced func(ctx context.Context, shutdown bool)) error {
	// Signals are received in the order in which they were sent.
	bus, err := dbus.Connect("unix:path="+socket, dbus.WithContext(ctx), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return fmt.Errorf("connecting to the bus: %w", err)
	}
	defer bus.Close()
	// Signals are subscribed to before the state is read, so that no change is missed.
	if err := subscribe(ctx, bus); err != nil {
		return fmt.Errorf("subscribing to announcements: %w", err)
	}
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	f := &follower{bus: bus.BusObject(), manager: bus.Object(Name, Path), who: who, announced: announced}
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

// subscribe subscribes to announcements, and to changes of the process that owns logind's name.
func subscribe(ctx context.Context, bus *dbus.Conn) error {
	err := bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(Name), dbus.WithMatchObjectPath(Path), dbus.WithMatchInterface(Interface), dbus.WithMatchMember(Announcement))
	if err != nil {
		return err
	}
	return bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName), dbus.WithMatchMember(busOwnerChanged), dbus.WithMatchArg(0, Name))
}

// A follower holds a lock that delays shutdowns, except while a shutdown continues.
type follower struct {
	bus, manager dbus.BusObject
	who          string
	announced    func(ctx context.Context, shutdown bool)
	lock         *os.File
	// owner is the connection of logind, or of a former one. The bus does not use its name again.
	owner string
}

// begin reports the current state. The bus may have to start logind first.
func (f *follower) begin(ctx context.Context) error {
	shutdown, err := f.preparing(ctx)
	if err != nil {
		return err
	}
	if err := f.bus.CallWithContext(ctx, busName+".GetNameOwner", 0, Name).Store(&f.owner); err != nil {
		return fmt.Errorf("finding logind on the bus: %w", err)
	}
	return f.report(ctx, shutdown)
}

// preparing reports whether a shutdown has begun.
func (f *follower) preparing(ctx context.Context) (bool, error) {
	var preparing dbus.Variant
	if err := f.manager.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, Interface, Preparing).Store(&preparing); err != nil {
		return false, fmt.Errorf("reading logind's property %s: %w", Preparing, err)
	}
	shutdown, _ := preparing.Value().(bool)
	return shutdown, nil
}

// receive handles a signal. Every process may send any signal to this connection, subscribed to or
// not: the sender, which the bus adds, must be logind or the bus.
func (f *follower) receive(ctx context.Context, signal *dbus.Signal) error {
	switch {
	case signal.Sender == f.owner && signal.Name == Interface+"."+Announcement && len(signal.Body) == 1:
		shutdown, _ := signal.Body[0].(bool)
		return f.report(ctx, shutdown)
	case signal.Sender == busName && signal.Name == busName+"."+busOwnerChanged:
		var name, before, now string
		if err := dbus.Store(signal.Body, &name, &before, &now); err != nil || name != Name || now == "" {
			return nil // logind has ended, and does not announce anything
		}
		f.release() // the new logind may not know this lock
		return f.begin(ctx)
	}
	return nil
}

// report takes the lock before it reports that no shutdown continues, so that none can begin
// unnoticed, and releases it afterwards if one does. logind refuses the lock if a shutdown has begun
// meanwhile, which is then reported; its signal may report it once more.
func (f *follower) report(ctx context.Context, shutdown bool) error {
	if !shutdown {
		if err := f.acquire(ctx); err != nil {
			if began, _ := f.preparing(ctx); !began {
				return err
			}
			shutdown = true
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
