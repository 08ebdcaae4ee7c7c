// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"io"
	"net"
	"sync"
)

// link connects everything that it accepts with an address, unless it is cut.
type link struct {
	listener         net.Listener
	network, address string

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]bool
}

func newLink(listener net.Listener, network, address string) *link {
	return &link{listener: listener, network: network, address: address, open: make(map[net.Conn]bool)}
}

// serve accepts connections until the listener is closed.
func (l *link) serve() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		if l.add(from) {
			go l.forward(from)
		}
	}
}

// cut closes all connections and refuses new ones, or accepts them again.
func (l *link) cut(isCut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = isCut
	if isCut {
		for connection := range l.open {
			_ = connection.Close()
		}
	}
}

// add records a connection, or closes it and returns false if the link is cut.
func (l *link) add(connection net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		_ = connection.Close()
		return false
	}
	l.open[connection] = true
	return true
}

func (l *link) forward(from net.Conn) {
	defer func() {
		_ = from.Close()
		l.mu.Lock()
		delete(l.open, from)
		l.mu.Unlock()
	}()
	to, err := net.Dial(l.network, l.address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}
