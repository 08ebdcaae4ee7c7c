// SPDX-License-Identifier: Apache-2.0

// Package standin simulates a fleet that is too large for a test machine. It is a
// proxy between a client and a real API server. It answers requests about Nodes,
// and about the pods of one namespace, from templates: by WatchList or in pages,
// in protobuf and over HTTP/2 with TLS, like an API server. It forwards all other
// requests, so that the real API server handles authorization, leader election,
// custom resources and dry runs.
//
// Objects are created when they are sent, and not kept.
package standin
