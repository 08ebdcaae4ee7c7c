// SPDX-License-Identifier: Apache-2.0

package nodestore

// watched is a Store with the Sink of the reflector that observes the Nodes.
type watched struct {
	*Store
	Sink
}

func newWatched(o Options) watched {
	s := New(o)
	return watched{Store: s, Sink: s.Sink(s.NeededVersion())}
}
