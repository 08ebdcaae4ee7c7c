// SPDX-License-Identifier: Apache-2.0

// Package connection configures the HTTP/2 connections to an API server. It does not need
// package rest, so that the node agent can use it.
package connection

import (
	"net/http"
	"os"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// With returns a transport.WrapperFunc that configures future connections, and returns the given
// transport: client-go has no other way to configure a transport, which all clients of a
// configuration share, before it is used.
//
// c must specify SendPingTimeout, after which a connection on which nothing is received is tested,
// and PingTimeout, after which it is closed if it was not answered. A machine that loses power does
// not close its connections, and all requests use one connection, so all of them fail until it is
// closed. client-go waits for 15 seconds, after 30 without anything received. If a user has set its
// environment variables for these times, they apply.
func With(c http.HTTP2Config) func(http.RoundTripper) http.RoundTripper {
	if os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS") != "" {
		c.SendPingTimeout = 0 // the transport's own value applies
	}
	if os.Getenv("HTTP2_PING_TIMEOUT_SECONDS") != "" {
		c.PingTimeout = 0
	}
	return func(rt http.RoundTripper) http.RoundTripper {
		if t := Innermost(rt); t != nil && t.HTTP2 == nil { // not set for another client yet
			t.HTTP2 = &c
		}
		return rt
	}
}

// Innermost returns the wrapped transport, or nil if it is of another type.
func Innermost(rt http.RoundTripper) *http.Transport {
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}
