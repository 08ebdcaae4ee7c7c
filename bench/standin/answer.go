// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var nodeResource = schema.GroupResource{Resource: "nodes"}

// protobuf is how the fleet's objects are written.
var protobuf = func() runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info
}()

// routes says who answers what.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		s.collection(w, r, s.fleet.nodes(), s.fleet.Heartbeats)
	})
	mux.HandleFunc("GET /api/v1/namespaces/"+s.fleet.Namespace+"/pods", func(w http.ResponseWriter, r *http.Request) {
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		s.collection(w, r, s.fleet.pods(selector), 0)
	})
	mux.HandleFunc("/api/v1/nodes/{name}", s.node)
	mux.HandleFunc("/api/v1/nodes/{name}/{subresource}", s.node)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.count(func(c *Counts) { c.PassedOn++ })
		s.upstream.ServeHTTP(w, r)
	})
	return mux
}

// node rejects all requests about a single Node. A replayed fleet does not
// change, so a client that has listed it does not need them.
func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.count(func(c *Counts) { c.Writes++ })
	}
	refuse(w, apierrors.NewForbidden(nodeResource, r.PathValue("name"), fmt.Errorf("it is replayed, and can be listed and watched only")))
}

// collection answers a list or a watch.
func (s *Server) collection(w http.ResponseWriter, r *http.Request, c collection, heartbeats int) {
	query := r.URL.Query()
	switch watch, _ := strconv.ParseBool(query.Get("watch")); {
	case !strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf):
		refuse(w, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, r.Method, nodeResource, "", "only protobuf is served", 0, true))
	case watch:
		s.watch(w, r, c, heartbeats)
	default:
		s.page(w, c, query)
	}
}

// page answers a list, or the part of it that was asked for: limit objects, from
// where the page before ended. Nothing happens between pages.
func (s *Server) page(w http.ResponseWriter, c collection, query url.Values) {
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	if limit <= 0 {
		limit = c.count
	}
	to := min(from+limit, c.count)
	var items []object
	for i := from; i < to; i++ {
		items = append(items, c.make(i))
	}
	list := c.list(items)
	if accessor, err := meta.ListAccessor(list); err == nil {
		accessor.SetResourceVersion(strconv.Itoa(bookmarkVersion))
		if rest := int64(c.count - to); rest > 0 {
			accessor.SetContinue(strconv.Itoa(to))
			accessor.SetRemainingItemCount(&rest)
		}
	}
	var body bytes.Buffer
	if err := protobuf.Serializer.Encode(list, &body); err != nil {
		refuse(w, apierrors.NewInternalError(err))
		return
	}
	s.count(func(c *Counts) {
		c.Pages++
		c.Initial += len(items)
		c.InitialBytes += body.Len()
	})
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = body.WriteTo(w) // the client may have gone away
}

// refuse responds with an error in the API server's format.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(&status) // the client may have gone away
}
