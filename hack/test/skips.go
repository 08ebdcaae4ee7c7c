// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// allowed is a test that may be skipped where skips are failures.
type allowed struct {
	pkg    string // relative to the module
	test   string
	reason string
}

// mayBeSkipped is the complete list of tests that may be skipped in continuous
// integration. A test named here does not test anything there: prefer a test that
// cannot be skipped.
var mayBeSkipped = []allowed{}

// shortReason ends the message with which tests are skipped under -short. See
// clustertest.SkipIfShort.
const shortReason = "run without -short"

// olderReason ends the message with which tests are skipped on an older Kubernetes.
// See clustertest.SkipWithoutMutatingPolicies.
const olderReason = "run with Kubernetes 1.36 or newer"

const module = "github.com/nodegate/nodegate"

// policy specifies which tests may be skipped.
type policy struct {
	strict  bool
	allowed []allowed
	// older is the older version of Kubernetes on which the tests run, or empty.
	// Features that it does not have cannot be tested on it.
	older string
}

func (p policy) find(pkg, test string) *allowed {
	for i, a := range p.allowed {
		if a.is(pkg) && a.test == test {
			return &p.allowed[i]
		}
	}
	return nil
}

// is reports whether the entry is for a test of the package.
func (a allowed) is(pkg string) bool {
	return strings.TrimPrefix(pkg, module+"/") == a.pkg
}
