// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"time"
)

// receiveBuffer is the maximum number of bytes of an API server's response that are buffered
// before they are read. Go's default of 4 MiB fills up for every list that arrives faster
// than it is decoded, and would be most of the memory at start. With this buffer, a server
// with a latency of 10 ms can still send 25 MB a second for each list, which is as fast as
// lists are decoded.
const receiveBuffer = 256 << 10

const (
	// pingAfter is the time without anything received after which the connection to the API server is
	// tested. With a Lease of two seconds, a standby reads it, and a leader renews it, at least every
	// 0.6 seconds, so no pings are sent while the API server answers.
	pingAfter = 2 * time.Second
	// answerWithin is how long the API server may take to answer a ping. It does so without etcd,
	// authorization or a queue, so only one that is paused or gets no CPU time takes seconds. To close a
	// connection that still works is expensive: all watches end with an error, so everything is listed
	// again, and a reboot in that interval counts as unobserved.
	answerWithin = 10 * time.Second
)

// connections returns the configuration of connections to the API server.
func connections() http.HTTP2Config {
	return http.HTTP2Config{MaxReceiveBufferPerStream: receiveBuffer, SendPingTimeout: pingAfter, PingTimeout: answerWithin}
}
