// SPDX-License-Identifier: Apache-2.0

// Package wire reads Nodes and Pods as the API server sends them in protobuf,
// and makes objects of them that hold no more than facts are made of. Most of
// what is sent, such as images, volumes, containers and managed fields, is
// passed over by its length. Field numbers are those of generated.proto in
// k8s.io/api and k8s.io/apimachinery.
//
// Whatever else is sent, a Status among it, and whatever comes as JSON, is
// decoded as client-go decodes it.
package wire
