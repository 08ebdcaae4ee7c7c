// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Ports are below the range that operating systems use for outgoing connections
// (32768 and up) and below NodePorts (30000 and up), so that no other process
// gets a component's port by chance while it is being restarted.
const (
	firstPort = 20000
	portCount = 10000
)

// address returns the loopback address of a port.
func address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// freePort returns a port on which no process is listening.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(portCount)
		if err = checkPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

// checkPort returns an error that names the port if it cannot be listened on.
func checkPort(port int) error {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		var reason *net.OpError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return fmt.Errorf("port %d of 127.0.0.1 cannot be used: %w", port, err)
	}
	return listener.Close()
}

// lostPort reports whether a process ended because another process took its port
// after it was chosen.
func lostPort(err error) bool {
	var exit *ExitError
	return errors.As(err, &exit) && strings.Contains(strings.Join(exit.LastLines, "\n"), "address already in use")
}
