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

// parseNodeNames returns the node names in args, sorted and without duplicates. A
// name may have a prefix as in kubectl's output (node/NAME).
func parseNodeNames(args []string) ([]string, error) {
	names := make([]string, 0, len(args))
	for _, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "node/"), "nodes/")
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
