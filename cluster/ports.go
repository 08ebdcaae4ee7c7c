// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Ports are taken from below the ranges that operating systems hand out to
// outgoing connections (32768 and up) and below NodePorts (30000 and up):
// while a component is being restarted, nobody gets its port by chance.
const (
	firstPort = 20000
	portCount = 10000
)

// address returns the loopback address of a port.
func address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// freePort returns a port on which nobody listens at the moment.
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

// lostPort reports whether a process ended because somebody else took its
// port between our choosing it and its listening on it.
func lostPort(err error) bool {
	var exit *ExitError
	return errors.As(err, &exit) && strings.Contains(strings.Join(exit.LastLines, "\n"), "address already in use")
}
