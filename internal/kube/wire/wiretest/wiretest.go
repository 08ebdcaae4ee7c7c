// SPDX-License-Identifier: Apache-2.0

// Package wiretest encodes objects as an API server does, for tests.
package wiretest

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Whole is the serializer of client-go, which decodes objects as a whole.
var Whole = scheme.Codecs.WithoutConversion()

// Protobuf returns the protobuf serializer of a NegotiatedSerializer.
func Protobuf(t testing.TB, from runtime.NegotiatedSerializer) runtime.SerializerInfo {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(from.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	return info
}

// Encode encodes an object as an API server sends it.
func Encode(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Whole.EncoderForVersion(Protobuf(t, Whole).Serializer, corev1.SchemeGroupVersion).Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
