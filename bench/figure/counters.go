// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/testcluster"
)

// counters are quantities that only grow. Quantities that cannot be counted are missing.
// Of a subject, they are those of its process; of the servers, those of the API server and
// of etcd together.
type counters map[string]float64

// Quantities of an operation.
const (
	ownCPU          = "cpu"          // ms
	ownInstructions = "instructions" // millions, in user mode
	ownObjects      = "objects"      // allocated
	ownAllocated    = "allocated"    // KiB
	ownReceived     = "received"     // KiB
	ownSent         = "sent"         // KiB
	ownRequests     = "requests"     // that the API server has answered

	serverCPU          = "server CPU"          // ms
	serverInstructions = "server instructions" // millions, in user mode
	serverAllocated    = "server allocated"    // KiB
	storeBytes         = "bytes"               // KiB that etcd writes
)

const kibibyte = 1 << 10

// since returns how much the counters have grown.
func (c counters) since(before counters) counters {
	grown := counters{}
	for quantity, value := range c {
		if earlier, ok := before[quantity]; ok {
			grown[quantity] = value - earlier
		}
	}
	return grown
}

// walBytes is the number of bytes that etcd has written to its write-ahead log, which
// contains every change once.
const walBytes = "etcd_disk_wal_write_bytes_total"

// count performs an operation and waits until all processes are idle, so that deferred
// work is included. It returns what the operation costs. The subject may be nil.
func (e *Env) count(ctx context.Context, s *Subject, operation func() error) (c counters, err error) {
	before := counters{}
	// Metrics cost the servers time, which must not be counted.
	if err := e.readMetrics(ctx, s, before); err != nil {
		return nil, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return nil, err
	}
	running := e.instructions(s)
	defer func() { err = errors.Join(err, running.close()) }()
	mark, err := e.Audit.Mark()
	if err != nil {
		return nil, err
	}
	if err := e.readProcesses(s, before); err != nil {
		return nil, err
	}
	if err := operation(); err != nil {
		return nil, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return nil, err
	}
	after := counters{}
	if err := errors.Join(e.readProcesses(s, after), running.read(after), e.readMetrics(ctx, s, after)); err != nil {
		return nil, err
	}
	used := after.since(before)
	for quantity := range running {
		used[quantity] = after[quantity]
	}
	requests, err := e.Audit.Since(mark)
	used[ownRequests] = float64(len(requests))
	return used, err
}

// countServers performs an operation and returns what the control plane uses in the meantime.
func (e *Env) countServers(ctx context.Context, operation func() error) (counters, error) {
	used, err := e.countEach(ctx, []*Subject{nil}, operation)
	if err != nil {
		return nil, err
	}
	return used[0], nil
}

// countEach performs an operation and returns what each subject uses in the meantime.
func (e *Env) countEach(ctx context.Context, subjects []*Subject, operation func() error) ([]counters, error) {
	metrics := func(s *Subject, into counters) error { return e.readMetrics(ctx, s, into) }
	return around(subjects, metrics, e.readProcesses, operation)
}

// around reads the counters of all subjects before and after an operation. Processes are read
// next to it, one right after the other: metrics cost processes time, also those of others.
func around(subjects []*Subject, metrics, processes func(*Subject, counters) error, operation func() error) ([]counters, error) {
	each := func(read func(*Subject, counters) error, into []counters) (err error) {
		for i, s := range subjects {
			if into[i] == nil {
				into[i] = counters{}
			}
			err = errors.Join(err, read(s, into[i]))
		}
		return err
	}
	before, after := make([]counters, len(subjects)), make([]counters, len(subjects))
	if err := errors.Join(each(metrics, before), each(processes, before)); err != nil {
		return nil, err
	}
	if err := operation(); err != nil {
		return nil, err
	}
	if err := errors.Join(each(processes, after), each(metrics, after)); err != nil {
		return nil, err
	}
	for i := range after {
		after[i] = after[i].since(before[i])
	}
	return after, nil
}

// servers returns the process IDs of API server and etcd.
func (e *Env) servers() []int {
	return []int{e.Cluster.PID(testcluster.APIServer), e.Cluster.PID(testcluster.Etcd)}
}

// readProcesses reads what the operating system counts.
func (e *Env) readProcesses(s *Subject, into counters) error {
	cpu, err := meter.CPU(e.servers()...)
	if err != nil {
		return err
	}
	into[serverCPU] = milliseconds(cpu)
	if s == nil {
		return nil
	}
	if cpu, err = meter.CPU(s.PID); err != nil {
		return err
	}
	received, sent, err := meter.Transferred(s.PID)
	into[ownCPU], into[ownReceived], into[ownSent] = milliseconds(cpu), received/kibibyte, sent/kibibyte
	return err
}

// readMetrics reads what the programs count. Allocations are counted by Go's runtime.
func (e *Env) readMetrics(ctx context.Context, s *Subject, into counters) error {
	etcd, err := meter.OfEtcd(ctx, e.Cluster)
	if err != nil {
		return err
	}
	if into[storeBytes] = etcd.Sum(walBytes, nil) / kibibyte; into[storeBytes] == 0 {
		return fmt.Errorf("reading etcd's metrics: there is no %s", walBytes)
	}
	server, err := meter.OfAPIServer(ctx, e.Cluster)
	if err != nil {
		return err
	}
	_, inServer := server.Allocated()
	_, inEtcd := etcd.Allocated()
	into[serverAllocated] = (inServer + inEtcd) / kibibyte
	if s == nil || s.Metrics == "" {
		return nil
	}
	own, err := meter.Of(ctx, s.Metrics)
	if err != nil {
		return err
	}
	objects, bytes := own.Allocated()
	into[ownObjects], into[ownAllocated] = objects, bytes/kibibyte
	return nil
}

// instructions are running counters of instructions, by quantity.
type instructions map[string]*meter.Instructions

// countInstructions starts counters for processes whose instructions can be counted.
func countInstructions(of map[string][]int) instructions {
	running := instructions{}
	for quantity, pids := range of {
		if counter, ok := meter.CountInstructions(pids...); ok {
			running[quantity] = counter
		}
	}
	return running
}

// instructions starts counters for the servers and a subject, which may be nil.
func (e *Env) instructions(s *Subject) instructions {
	counted := map[string][]int{serverInstructions: e.servers()}
	if s != nil {
		counted[ownInstructions] = []int{s.PID}
	}
	return countInstructions(counted)
}

func (i instructions) read(into counters) error {
	for quantity, counter := range i {
		count, err := counter.Count()
		if err != nil {
			return err
		}
		into[quantity] = count / 1e6
	}
	return nil
}

func (i instructions) close() error {
	var errs []error
	for _, counter := range i {
		errs = append(errs, counter.Close())
	}
	return errors.Join(errs...)
}
