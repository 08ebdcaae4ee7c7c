// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/nodegate/nodegate/internal/cluster"
)

// nodesOf are the names of the nodes that arguments name, each once, in order. Nodes
// may be named as kubectl prints them.
func nodesOf(args []string) ([]string, error) {
	names := make([]string, 0, len(args))
	for _, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "node/"), "nodes/")
		if name == "" || len(content.IsPathSegmentName(name)) > 0 {
			return nil, fmt.Errorf("%q is no name of a node", arg)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// readNode reads a node, and says of one that there is not what may have been meant.
func readNode(ctx context.Context, reader *cluster.Reader, name string) (*corev1.Node, error) {
	node, err := reader.Node(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, noSuchNode(ctx, reader, name)
	case err != nil:
		return nil, unanswered(err)
	}
	return node, nil
}

// noSuchNode says that there is no such node, and what may have been meant.
func noSuchNode(ctx context.Context, reader *cluster.Reader, name string) error {
	names, _ := reader.NodeNames(ctx) // who may not list nodes is told as much as is known
	return fmt.Errorf("there is no node %q%s", name, didYouMean(name, names))
}
