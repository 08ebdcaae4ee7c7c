// SPDX-License-Identifier: Apache-2.0

// Package freeport chooses ports for servers that start later, or in another process. A
// server that can be given an open listener needs none of this.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports are below the range that operating systems use for outgoing connections and for
// listeners on port 0 (32768 and up), and below NodePorts (30000 and up), so that no
// other process gets a port by chance after it was chosen.
const (
	first = 20000
	count = 10000
)

// Loopback is the host whose ports other machines cannot reach.
const Loopback = "127.0.0.1"

// last is the last port that was chosen. Processes begin at random ports, and within a
// process no port is chosen twice, unless all others have been chosen.
var last atomic.Uint32

func init() { last.Store(rand.Uint32N(count)) }

// Choose returns a port of the host on which no process is listening. The empty host
// stands for all addresses of the machine.
func Choose(host string) (int, error) {
	var err error
	for range 100 {
		port := first + int(last.Add(1)%count)
		if err = Check(host, port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

// Address returns a loopback address on which no process is listening.
func Address() (string, error) {
	port, err := Choose(Loopback)
	return net.JoinHostPort(Loopback, strconv.Itoa(port)), err
}

// Check returns an error that names the port if it cannot be listened on.
func Check(host string, port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		var reason *net.OpError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return fmt.Errorf("port %d of %s cannot be used: %w", port, host, err)
	}
	return listener.Close()
}
