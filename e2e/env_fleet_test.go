// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"sync"
)

// fleet registers many nodes.
func (e *env) fleet(n int) []*kubelet {
	e.Helper()
	all := make([]*kubelet, n)
	for i := range all {
		all[i] = e.kubelet(fmt.Sprintf("old-%03d", i))
	}
	e.each(all, func(k *kubelet) { k.register() })
	return all
}

// each calls a function for every node, eight at a time.
func (e *env) each(all []*kubelet, do func(*kubelet)) {
	e.Helper()
	var running sync.WaitGroup
	limit := make(chan struct{}, 8)
	for _, k := range all {
		limit <- struct{}{}
		running.Go(func() { defer func() { <-limit }(); do(k) })
	}
	running.Wait()
}

// closed returns the number of nodes on which the gate is closed.
func (e *env) closed(gateName string, kubelets []*kubelet) (n int) {
	e.Helper()
	for _, k := range kubelets {
		if k.record(gateName).State == isClosed {
			n++
		}
	}
	return n
}
