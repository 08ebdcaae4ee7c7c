// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"testing"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// Names of nodes that are not known yet are dropped when the nodes are listed.
func TestNamesOfListedNodesAreKeptOnce(t *testing.T) {
	s := newWatched(Options{})
	s.NameOf("a")
	s.NameOf("unknown")
	s.Replace([]*packed.Node{s.Pack(kubetest.Node("a", "a1"))})
	if !s.early.nodesRead || len(s.early.names) > 0 {
		t.Errorf("still kept: %v", s.early.names)
	}
	if s.NameOf("a"); len(s.early.names) > 0 {
		t.Errorf("the name of a known node is kept: %v", s.early.names)
	}
}

// The number of names of unknown nodes is limited, once the nodes are listed.
func TestEarlyNamesAreLimited(t *testing.T) {
	e := earlyNames{}
	e.forget()
	for i := range 3 * laterMax {
		e.name(string(rune(i)))
	}
	if len(e.names) > laterMax {
		t.Errorf("%d names are kept", len(e.names))
	}
}
