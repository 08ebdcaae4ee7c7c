// SPDX-License-Identifier: Apache-2.0

// Package standin replays a fleet that no machine for tests could hold: it stands
// between a client and a real API server, answers what is asked about Nodes and
// about the pods of one namespace from templates, by WatchList or in pages, in
// protobuf and over HTTP/2 with TLS, as an API server does, and passes everything
// else on. So the client's rights, its leader election, its custom kinds and its
// dry runs are answered by the real one.
//
// Objects are made at the moment in which they are sent, and forgotten.
package standin
