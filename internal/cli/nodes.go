// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/internal/kube/read"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// nodeTypes are the types in arguments of the form TYPE/NAME that name nodes.
var nodeTypes = []string{"node", "nodes", "no"}

// parseNodeNames returns the names of nodes that are given as NAME or TYPE/NAME, sorted and without
// duplicates.
func parseNodeNames(args []string) ([]string, error) {
	names := make([]string, 0, len(args))
	for _, arg := range args {
		name := arg
		if kind, rest, typed := strings.Cut(arg, "/"); typed && slices.Contains(nodeTypes, kind) {
			name = rest
		}
		if name == "" || len(content.IsPathSegmentName(name)) > 0 {
			return nil, fmt.Errorf("%q is not a valid node name", arg)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// readNode reads a node. If the node does not exist, the error suggests similar
// names.
func readNode(ctx context.Context, reader *read.Reader, name string) (*corev1.Node, error) {
	node, err := reader.Node(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, noSuchNode(ctx, reader, name)
	case err != nil:
		return nil, describeRequestError(err)
	}
	return node, nil
}

// noSuchNode returns an error for a node that does not exist. It suggests similar
// names.
func noSuchNode(ctx context.Context, reader *read.Reader, name string) error {
	names, _ := reader.NodeNames(ctx) // without permission to list nodes, there are no suggestions
	return fmt.Errorf("node %q not found%s", name, didYouMean(name, names))
}
