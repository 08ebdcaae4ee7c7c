// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Patch is a JSON patch of a Node that was carried out.
type Patch struct {
	// Node is the Node's index.
	Node int
	At   time.Time
}

// Patches returns all patches so far, in order.
func (s *Server) Patches() []Patch {
	s.patching.Lock()
	defer s.patching.Unlock()
	return slices.Clip(s.patches)
}

var nodeResource = schema.GroupResource{Resource: "nodes"}

// oneNode answers a GET or a JSON patch of a Node.
func (s *Server) oneNode(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	i, ok := s.fleet.Index(name)
	if !ok || s.node(i) == nil {
		reject(w, apierrors.NewNotFound(nodeResource, name))
		return
	}
	node := s.node(i)
	if r.Method == http.MethodPatch {
		var err error
		if node, err = s.patch(i, r.Body); err != nil {
			reject(w, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", nodeResource, name, err.Error(), 0, true))
			return
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_ = protobuf.Serializer.Encode(node, w) // the client may have disconnected
}

// patch applies a JSON patch to the i-th Node and returns the result.
func (s *Server) patch(i int, body io.Reader) (*corev1.Node, error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("reading a patch: %w", err)
	}
	operations, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, fmt.Errorf("decoding a patch: %w", err)
	}
	s.patching.Lock() // one at a time, so that none is lost
	defer s.patching.Unlock()
	before, err := json.Marshal(s.node(i))
	if err != nil {
		return nil, fmt.Errorf("encoding a Node: %w", err)
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("applying a patch: %w", err)
	}
	var node corev1.Node
	if err := json.Unmarshal(after, &node); err != nil {
		return nil, fmt.Errorf("decoding a Node: %w", err)
	}
	s.PutNode(i, &node)
	s.patches = append(s.patches, Patch{i, time.Now()})
	s.Writes.Add(1)
	return &node, nil
}
