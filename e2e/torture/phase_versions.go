// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// replaced counts replacements of the program or the manifests by another version.
const replaced faultproxy.Fault = "version replaced"

func olderProgram(o *Options) string {
	if o.OlderProgram == "" {
		return "there is no program of an older version; with OLDER_REVISION=v0.1.0, for example, one is built"
	}
	return ""
}

// versions upgrades from an older version to this one and back, program and manifests one
// after the other, on a fleet with half of its nodes closed. This must open and close
// nothing.
func versions(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	for i, n := range s.fleet.nodes {
		if i%2 == 0 {
			continue
		}
		if err := s.fleet.retry(ctx, "node "+n.Name, func(ctx context.Context) error { return n.newlyClosed(ctx) }); err != nil {
			return err
		}
	}
	if err := s.rest(ctx); err != nil {
		return err
	}
	before, err := s.fleet.states(ctx)
	if err != nil {
		return err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, to := range []struct{ program, manifests string }{
			{s.OlderProgram, s.Program}, {s.OlderProgram, s.OlderProgram}, {s.Program, s.OlderProgram}, {s.Program, s.Program},
		} {
			if r, err = s.replace(ctx, r, to.program, to.manifests); err != nil {
				return err
			}
			after, err := s.fleet.states(ctx)
			if err != nil {
				return err
			}
			if diff := difference(before, after); diff != "" {
				return fmt.Errorf("replacing a version (%+v) changed gates: %s", to, diff)
			}
		}
	}
	return nil
}

// newlyClosed deletes and re-creates the Node, with no signal that holds.
func (n *node) newlyClosed(ctx context.Context) error {
	if err := n.kube.CoreV1().Nodes().Delete(ctx, n.Name, deleteNow); err != nil {
		return err
	}
	if _, err := n.register(ctx); err != nil {
		return err
	}
	return errors.Join(n.Report(ctx, simnode.Conditions{ready: yes, net: no, badDisk: yes}), n.reportPod(ctx, false), n.label(ctx, map[string]any{fit: nil}))
}

// replace runs another program, or installs the manifests that a program prints.
func (s *site) replace(ctx context.Context, r *replica, program, manifests string) (*replica, error) {
	s.report.inject(replaced)
	if err := r.stop(); err != nil {
		return nil, err
	}
	if _, err := testbed.Install(ctx, s.applier, manifests, taintKeys()); err != nil {
		return nil, err
	}
	installation := *s.installation
	installation.Program = program
	s.installation = &installation
	r, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := await.Pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	return r, s.rest(ctx)
}

// states returns the states of all gates on all nodes: states of records, and taints.
func (f *fleet) states(ctx context.Context) (map[string]string, error) {
	list, err := f.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	states := make(map[string]string)
	for i := range list.Items {
		n := &list.Items[i]
		var all []string
		for key, value := range n.Annotations {
			if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
				all = append(all, fmt.Sprintf("%s open: %v", name, strings.Contains(value, `"state":"Open"`)))
			}
		}
		for _, t := range n.Spec.Taints {
			all = append(all, t.ToString())
		}
		slices.Sort(all)
		states[n.Name] = strings.Join(all, ", ")
	}
	return states, nil
}

// difference describes the number of nodes whose states differ, with one example.
func difference(before, after map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d nodes changed; %s from %q to %q", len(names), names[0], before[names[0]], after[names[0]])
}
