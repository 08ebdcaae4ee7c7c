// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// receiveBuffer is the maximum number of bytes of an API server's response that are buffered
// before they are read. Go's default of 4 MiB fills up for every list that arrives faster
// than it is decoded, and would be most of the memory at start. With this buffer, a server
// with a latency of 10 ms can still send 25 MB a second for each list, which is as fast as
// lists are decoded.
const receiveBuffer = 256 << 10

// boundBuffers limits the buffers of future connections. It is a transport.WrapperFunc that
// returns the given transport: client-go has no other way to configure a transport, which
// all clients of a configuration share, before it is used.
func boundBuffers(rt http.RoundTripper) http.RoundTripper {
	if t := innermost(rt); t != nil && t.HTTP2 == nil { // not set for another client yet
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer}
	}
	return rt
}

// innermost returns the wrapped transport, or nil if it is of another type.
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
