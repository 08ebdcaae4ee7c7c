// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/nodegate/nodegate/testcluster/freeport"
)

// address returns the loopback address of a port.
func address(port int) string {
	return net.JoinHostPort(freeport.Loopback, strconv.Itoa(port))
}

// freePort returns a loopback port on which no process is listening.
func freePort() (int, error) { return freeport.Choose(freeport.Loopback) }

// lostPort reports whether a process ended because another process took its port
// after it was chosen.
func lostPort(err error) bool {
	var exit *ExitError
	return errors.As(err, &exit) && strings.Contains(strings.Join(exit.LastLines, "\n"), "address already in use")
}
