// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// receiveBuffer bounds, in bytes, what of each answer of the API server waits to be
// read. Go's default of 4 MiB fills up with every list that arrives faster than it
// is decoded, which is most of the memory that a start would take. With this one, a
// server that is 10 ms away can still send 25 MB a second, for each list, which is
// as much as is decoded.
const receiveBuffer = 256 << 10

// boundBuffers bounds the buffers of connections that are yet to be made. It is a
// transport.WrapperFunc that wraps nothing: client-go has no other way to get at a
// transport, which all clients of a configuration share, before it is used.
func boundBuffers(rt http.RoundTripper) http.RoundTripper {
	if t := innermost(rt); t != nil && t.HTTP2 == nil { // else another client was first
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
	}
	return rt
}

// innermost is the transport that others wrap; nil if it is of another kind.
func innermost(rt http.RoundTripper) *http.Transport {
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
