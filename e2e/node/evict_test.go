// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/testcluster/await"
)

// With a second gate whose recloseTaint is NoExecute, pods that were bound before a reboot
// are deleted as soon as the new boot is observed, and replaced after the gates have opened.
// The kubelet may nevertheless start one of them before: only their number is logged.
func TestEvictionAtReboot(t *testing.T) {
	h := newHostWith(t, map[string]string{evictLabel: "true"})
	h.bootAndOpen(t)
	var early, all int
	times := (*reboots + 2) / 3 // each takes two to three times as long as in other tests
	for range times {
		before := uids(h.boundPods(t))
		off := h.rebootClosed(t)
		must(t, await.Until(t.Context(), "eviction of pods", func(context.Context) error {
			if remain := intersection(before, uids(h.boundPods(t))); len(remain) > 0 {
				return fmt.Errorf("%d of %d remain", len(remain), len(before))
			}
			return nil
		}))
		must(t, await.Until(t.Context(), "taint with NoExecute", func(context.Context) error { return h.evicted() }))
		early += count(h.starts(t), "workload", off)
		all += len(before)
		h.setReady(t, true)
		h.await(t, false)
		h.awaitStart(t, "workload", off)
	}
	t.Logf("%d reboots: of %d pods that were bound before, %d started before the gates opened", times, all, early)
}

// evicted returns an error unless the Node has had the taint with NoExecute in this boot.
func (h *host) evicted() error {
	evicting := corev1.Taint{Key: taint.Key, Effect: corev1.TaintEffectNoExecute}
	for _, n := range h.history() {
		if n.Status.NodeInfo.BootID == h.BootID() && slices.ContainsFunc(n.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&evicting) }) {
			return nil
		}
	}
	return errors.New("no state of the Node has it")
}

func uids(pods []corev1.Pod) (all []types.UID) {
	for i := range pods {
		all = append(all, pods[i].UID)
	}
	return all
}

func intersection(a, b []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(a), func(uid types.UID) bool { return !slices.Contains(b, uid) })
}
