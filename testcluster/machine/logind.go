// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
)

// Names of systemd-logind, which the kubelet and nodegate's agent ask to delay shutdowns.
// Source: https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.login1.html
const (
	logindName      = "org.freedesktop.login1"
	logindPath      = "/org/freedesktop/login1"
	logindInterface = "org.freedesktop.login1.Manager"
	logindPreparing = "PreparingForShutdown"
	// logindDelay is the time for which a shutdown can be delayed (InhibitDelayMaxUSec).
	logindDelay = time.Minute

	busSocket = "/run/dbus/system_bus_socket"
)

// logind stands in for systemd-logind: it hands out delay locks, and announces shutdowns.
type logind struct {
	connection *dbus.Conn
	properties *prop.Properties

	mu    sync.Mutex
	locks []lock
}

// A lock delays a shutdown until its holder has closed its end of a pipe. own is a copy of
// that end, which the bus daemon has been given.
type lock struct {
	who       string // the holder
	read, own *os.File
}

// newLogind connects to the machine's bus.
func newLogind() (*logind, error) {
	connection, err := dbus.Connect("unix:path=" + busSocket)
	if err != nil {
		return nil, fmt.Errorf("connecting to the bus: %w", err)
	}
	l := &logind{connection: connection}
	if err := connection.Export(l, logindPath, logindInterface); err != nil {
		return nil, fmt.Errorf("exporting logind: %w", err)
	}
	l.properties, err = prop.Export(connection, logindPath, prop.Map{logindInterface: {
		"InhibitDelayMaxUSec": {Value: uint64(logindDelay / time.Microsecond)},
		logindPreparing:       {Value: false},
	}})
	if err != nil {
		return nil, fmt.Errorf("exporting logind's properties: %w", err)
	}
	reply, err := connection.RequestName(logindName, dbus.NameFlagDoNotQueue)
	if err != nil {
		return nil, fmt.Errorf("requesting the name of logind: %w", err)
	}
	if reply != dbus.RequestNameReplyPrimaryOwner {
		return nil, errors.New("the bus has another logind")
	}
	return l, nil
}

// Inhibit is called over the bus. It returns a lock.
func (l *logind) Inhibit(_, who, _, _ string) (dbus.UnixFD, *dbus.Error) {
	read, own, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, lock{who, read, own})
	return dbus.UnixFD(own.Fd()), nil
}

// awaitRelease returns when all locks have been released, or an error when one of them has not been
// within a time. logind would continue the shutdown then, but each holder is to release its lock.
func (l *logind) awaitRelease(within time.Duration) error {
	l.mu.Lock()
	locks := l.locks
	l.locks = nil
	l.mu.Unlock()
	for _, lock := range locks {
		_ = lock.own.Close() // the holder has the only copy from now on
	}
	var holders []string
	limit := time.Now().Add(within)
	for _, lock := range locks {
		poll := []unix.PollFd{{Fd: int32(lock.read.Fd()), Events: unix.POLLIN}}
		for more := true; more && poll[0].Revents == 0; more = time.Now().Before(limit) {
			_, _ = unix.Poll(poll, int(max(time.Until(limit), 0).Milliseconds())) // again if it is interrupted
		}
		if poll[0].Revents == 0 {
			holders = append(holders, lock.who)
		}
		_ = lock.read.Close()
	}
	if len(holders) > 0 {
		return fmt.Errorf("after %s, the shutdown is still delayed by %q", within, holders)
	}
	return nil
}

// announce announces that a shutdown begins, or that it has been cancelled.
func (l *logind) announce(shutdown bool) error {
	l.properties.SetMust(logindInterface, logindPreparing, shutdown)
	return l.connection.Emit(logindPath, logindInterface+".PrepareForShutdown", shutdown)
}
