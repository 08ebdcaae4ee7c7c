// SPDX-License-Identifier: Apache-2.0

// Package restconfig derives the configurations of nodegate's clients.
package restconfig

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Unlimited returns a copy of config with client-go's default rate limit disabled. A rate
// limit that config sets explicitly is kept.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// Core returns a copy of config for built-in kinds, which are encoded as protobuf.
func Core(config *rest.Config) *rest.Config {
	config = Unlimited(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// Bulk returns a copy of config for reading hundreds of megabytes, over HTTP/1.1. In
// HTTP/2, an API server sends a list in frames of 4 KB, each with a change of goroutines,
// which takes twice the CPU time on both sides. HTTP/1.1 has no pings, so watches, which
// may receive nothing for minutes, should not use it.
func Bulk(config *rest.Config) *rest.Config {
	config = Core(config)
	config.NextProtos = []string{"http/1.1"}
	return config
}
