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
)

// podServer serves a list of pods in pages, in a media type.
type podServer struct {
	mediaType string
	pods      int
	failAt    string // the token of a page that is rejected

	mu    sync.Mutex
	pages []string // the tokens of the requested pages, with whether they may be compressed
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.mu.Lock()
	s.pages = append(s.pages, query.Get("continue")+" "+r.Header.Get("Accept-Encoding"))
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
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	r, err := NewReader(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	r.workloads.page = 2
	err = r.EachWorkload(t.Context(), func(o *corev1.Pod) {
		if !o.Spec.HostNetwork {
			t.Errorf("pod %s was not decoded", o.Name)
		}
		names = append(names, o.Name)
	})
	return names, err
}

// All pages are read, in order, in protobuf and in JSON. The first pages are compressed and
// not compressed alternately.
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
			for i, page := range s.pages[:min(triedPages, len(s.pages))] {
				if plain := strings.HasSuffix(page, "identity"); plain != (i%2 == 1) {
					t.Errorf("page %d: %s", i, page)
				}
			}
		}
	}
}

// An error in the middle of a list is an error of the whole list.
func TestEachBoundPodFails(t *testing.T) {
	s := &podServer{mediaType: runtime.ContentTypeProtobuf, pods: 9, failAt: "4"}
	if got, err := s.read(t); !apierrors.IsResourceExpired(err) || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
}

// The faster transfer is used, unless it becomes slower than the other was. The first page
// does not count.
func TestCompression(t *testing.T) {
	for name, c := range map[string]struct {
		took  string // of equally large pages: pairs of a compressed one and another one
		plain bool
	}{
		"a fast network":                    {"9 2 5 2 5", true},
		"a slow network":                    {"1 50 5 50 5", false},
		"no difference":                     {"1 5 5 5 5", false},
		"one page is late":                  {"9 9 5 2 9", true},
		"the faster transfer becomes slow":  {"9 2 5 2 5 90", false},
		"the faster transfer becomes quick": {"9 2 5 2 5 1 1 1", true},
	} {
		var now compression
		for _, took := range strings.Fields(c.took) {
			seconds, err := strconv.Atoi(took)
			if err != nil {
				t.Fatal(err)
			}
			now.received(now.plainNext(), 1000, time.Duration(seconds)*time.Second)
		}
		if now.plainNext() != c.plain {
			t.Errorf("%s: %+v", name, now)
		}
	}
}
