// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"runtime"
	"testing"
)

// Garbage is not counted, and what is in use is.
func TestLiveHeap(t *testing.T) {
	const size = 64 << 20
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	server := httptest.NewServer(mux)
	defer server.Close()
	live := func() int64 {
		bytes, err := LiveHeap(t.Context(), server.Client(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before := live()
	used := make([]byte, size)
	with := live() - before
	runtime.KeepAlive(used)
	if without := live() - before; with < size/2 || without > size/2 {
		t.Errorf("%d bytes more in use, and %d without them, want some %d and none", with, without, size)
	}
}

func TestWhatTellsNoHeap(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("heap profile: none"))
	}))
	defer server.Close()
	if bytes, err := LiveHeap(t.Context(), server.Client(), server.URL); err == nil {
		t.Errorf("%d bytes", bytes)
	}
}
