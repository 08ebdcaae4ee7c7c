// SPDX-License-Identifier: Apache-2.0

package read

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
	"github.com/nodegate/nodegate/testcluster/await"
)

// podServer serves a list of pods in pages, in a media type.
type podServer struct {
	mediaType string
	pods      int
	failAt    string // the token of a page that is rejected

	mu    sync.Mutex
	pages []string // the tokens of the requested pages
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.ProtoMajor != 1 {
		http.Error(w, "pods are read over "+r.Proto, http.StatusHTTPVersionNotSupported)
		return
	}
	s.mu.Lock()
	s.pages = append(s.pages, query.Get("continue"))
	s.mu.Unlock()
	if token := query.Get("continue"); token != "" && token == s.failAt {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`))
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	list := &corev1.PodList{}
	to := min(from+limit, s.pods)
	for i := from; i < to; i++ {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)}, Spec: corev1.PodSpec{NodeName: "n", HostNetwork: true},
		})
	}
	if to < s.pods {
		list.Continue = strconv.Itoa(to)
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), s.mediaType)
	w.Header().Set("Content-Type", s.mediaType)
	_ = scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(list, w)
}

func (s *podServer) read(t *testing.T) ([]string, error) {
	t.Helper()
	r := newReader(t, s)
	var names []string
	r.workloads.page = 2
	err := r.EachWorkload(t.Context(), func(o *corev1.Pod) {
		if !o.Spec.HostNetwork {
			t.Errorf("pod %s was not decoded", o.Name)
		}
		names = append(names, o.Name)
	})
	return names, err
}

// newReader returns a Reader for an API server that also serves HTTP/2.
func newReader(t *testing.T, handler http.Handler) *Reader {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	r, err := NewReader(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// All pages are read, in order, in protobuf and in JSON.
func TestEachBoundPod(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		for _, count := range []int{0, 1, 2, 3, 11} {
			s := &podServer{mediaType: mediaType, pods: count}
			got, err := s.read(t)
			var want []string
			for i := range count {
				want = append(want, fmt.Sprint("pod-", i))
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%d pods in %s: %v, %v", count, mediaType, got, err)
			}
			if requests := max(1, (count+1)/2); len(s.pages) != requests {
				t.Errorf("%d pods in %s: %d requests, want %d: %v", count, mediaType, len(s.pages), requests, s.pages)
			}
		}
	}
}

// A token that is longer than the head of a page is found when the page was received.
func TestLongToken(t *testing.T) {
	read, token := 0, strings.Repeat("x", headBytes+1)
	err := newReader(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := &corev1.PodList{Items: make([]corev1.Pod, 1)}
		if r.URL.Query().Get("continue") != token {
			list.Continue = token
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(wiretest.Encode(t, list))
	})).EachWorkload(t.Context(), func(*corev1.Pod) { read++ })
	if err != nil || read != 2 {
		t.Errorf("read %d pods (%v), want 2", read, err)
	}
}

// An error in the middle of a list is an error of the whole list.
func TestEachBoundPodFails(t *testing.T) {
	s := &podServer{mediaType: runtime.ContentTypeProtobuf, pods: 9, failAt: "4"}
	if got, err := s.read(t); !apierrors.IsResourceExpired(err) || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
}

// A page is requested while the page before it is still being received.
func TestPagesOverlap(t *testing.T) {
	requested := make(chan struct{})
	first := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "second"}}
	for i := range headBytes / 16 {
		first.Items = append(first.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%012d", i)}})
	}
	read := 0
	err := newReader(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		if r.URL.Query().Get("continue") != "" {
			close(requested)
			_, _ = w.Write(wiretest.Encode(t, &corev1.PodList{Items: first.Items[:1]}))
			return
		}
		body := wiretest.Encode(t, first)
		_, _ = w.Write(body[:headBytes])
		w.(http.Flusher).Flush()
		select {
		case <-requested:
		case <-time.After(await.Silence):
			t.Error("the second page was not requested during the first")
		}
		_, _ = w.Write(body[headBytes:])
	})).EachWorkload(t.Context(), func(*corev1.Pod) { read++ })
	if want := len(first.Items) + 1; err != nil || read != want {
		t.Errorf("read %d pods (%v), want %d", read, err, want)
	}
}
