// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// ErrCompiling is returned for a gate that is not in force yet because it is being
// compiled.
var ErrCompiling = errors.New("its expressions are being compiled")

// Compiler compiles gates. It compiles gates with new expressions in the background, one
// at a time, starting with the shortest expressions. Compiling an expression takes
// milliseconds at worst, but an author can declare many. No gate waits for a gate that
// takes longer to compile.
type Compiler struct {
	Compile func(*v1alpha1.NodeGate, string) (gate.Gate, error)
	// changed is called after each compilation in the background.
	changed func()
	wake    chan struct{}

	mu sync.Mutex
	// wanted contains the gates that the latest set waits for. done contains those compiled
	// since that set was created. Both are by name.
	wanted, done map[string]compilation
}

// compilation is a gate to compile, or the result.
type compilation struct {
	declared *v1alpha1.NodeGate
	source   string
	length   int // of the expressions to compile, in bytes
	gate     gate.Gate
	err      error
}

func (c *compilation) isOf(ng *v1alpha1.NodeGate, source string) bool {
	return c.declared.IsDeclaredAs(ng) && c.source == source
}

// NewCompiler returns a Compiler that calls changed after each compilation in the
// background.
func NewCompiler(changed func()) *Compiler {
	return &Compiler{Compile: signal.Compile, changed: changed, wake: make(chan struct{}, 1)}
}

// Next returns a function that compiles the gates of the next set, one by one. For a gate
// that must wait, it returns ErrCompiling and a gate without effect. After the last gate,
// begin must be called to start compiling in the background. Only then is it known which
// expressions are the shortest.
func (c *Compiler) Next() (compile func(*v1alpha1.NodeGate, string) (gate.Gate, error), begin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, wanted := c.done, make(map[string]compilation)
	c.done = make(map[string]compilation)
	compile = func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
		if was, found := done[ng.Name]; found && was.isOf(ng, source) {
			return was.gate, was.err
		}
		length := newExpressions(ng)
		if length == 0 {
			return c.Compile(ng, source)
		}
		wanted[ng.Name] = compilation{declared: ng, source: source, length: length}
		return signal.Uncompiled(ng, source), ErrCompiling
	}
	return compile, func() {
		c.mu.Lock()
		c.wanted = wanted
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// newExpressions returns the total length of a gate's expressions that have not been
// compiled.
func newExpressions(ng *v1alpha1.NodeGate) int {
	sum, all := 0, signal.ExpressionsOf(&ng.Spec)
	for _, kind := range []struct {
		texts      []string
		isCompiled func(string) bool
	}{{all.Nodes, expression.IsCompiled}, {all.Objects, expression.IsObjectCompiled}, {all.Devices, expression.IsDeviceCompiled}} {
		for _, text := range kind.texts {
			if !kind.isCompiled(text) {
				sum += len(text)
			}
		}
	}
	return sum
}

// Run compiles wanted gates until the context ends.
func (c *Compiler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next, found := c.shortest()
		if !found {
			select {
			case <-ctx.Done():
			case <-c.wake:
			}
			continue
		}
		next.gate, next.err = c.Compile(next.declared, next.source)
		c.finish(next)
	}
}

// shortest returns the wanted gate with the shortest expressions, if any.
func (c *Compiler) shortest() (compilation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best compilation
	for _, one := range c.wanted {
		if best.declared == nil || cmp.Or(cmp.Compare(one.length, best.length), cmp.Compare(one.declared.Name, best.declared.Name)) < 0 {
			best = one
		}
	}
	return best, best.declared != nil
}

func (c *Compiler) finish(one compilation) {
	c.mu.Lock()
	name := one.declared.Name
	if wanted, found := c.wanted[name]; found && wanted.isOf(one.declared, one.source) {
		delete(c.wanted, name)
		c.done[name] = one
	}
	c.mu.Unlock()
	c.changed()
}
