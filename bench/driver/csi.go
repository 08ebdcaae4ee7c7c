// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/fixture"
)

// CSINodes are the CSINodes of a fleet's first nodes.
type CSINodes struct {
	driver  *Driver
	with    []Stored // the driver is registered
	without []Stored
	index   map[string]int // by the node's name
}

// NewCSINodes returns the CSINodes of the fleet's first nodes, on which the named driver
// registers. They do not exist yet.
func (f *Fleet) NewCSINodes(ctx context.Context, count int, csiDriver string) (*CSINodes, error) {
	nodes, err := f.driver.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	c := &CSINodes{driver: f.driver, index: map[string]int{}}
	wanted := map[string]bool{}
	for _, name := range f.nodes[:count] {
		wanted[name] = true
	}
	for i := range nodes {
		if !wanted[nodes[i].Name] {
			continue
		}
		with, err := Store(fixture.CSINode(&nodes[i], csiDriver, true))
		without, err2 := Store(fixture.CSINode(&nodes[i], csiDriver, false))
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		c.index[nodes[i].Name] = len(c.with)
		c.with, c.without = append(c.with, with), append(c.without, without)
	}
	return c, nil
}

// Register registers the CSI driver on all nodes, or removes it, as fast as Put allows.
func (c *CSINodes) Register(ctx context.Context, registered bool) (Speed, error) {
	if registered {
		return c.driver.Put(ctx, c.with)
	}
	return c.driver.Put(ctx, c.without)
}

// RegisterOne registers the CSI driver on a node.
func (c *CSINodes) RegisterOne(ctx context.Context, node string) error {
	i, ok := c.index[node]
	if !ok {
		return fmt.Errorf("registering the CSI driver on %s: it is not one of the fleet's first nodes", node)
	}
	return c.driver.put(ctx, c.with[i])
}

// Delete deletes the CSINodes.
func (c *CSINodes) Delete(ctx context.Context) error {
	keys := make([]string, len(c.with))
	for i := range keys {
		keys[i] = c.with[i].Key
	}
	return c.driver.Delete(ctx, keys)
}
