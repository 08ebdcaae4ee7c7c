// SPDX-License-Identifier: Apache-2.0

// Package wire decodes Nodes and Pods that the API server sends in protobuf into objects
// that contain only what facts require. Most of the input, such as images, volumes,
// containers and managed fields, is skipped. Field numbers are those of generated.proto
// in k8s.io/api and k8s.io/apimachinery.
//
// All other kinds, including Status, and all JSON are decoded as by client-go.
package wire
