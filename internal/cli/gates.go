// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// errNotInstalled is returned when the API server does not serve NodeGates.
var errNotInstalled = errors.New("nodegate is not installed, or reads its gates from files: the API server does not serve NodeGates")

// declaredGates reads the NodeGates. If the API server does not serve NodeGates,
// installed is false and there are none; gates may still come from files.
func declaredGates(ctx context.Context, reader *read.Reader) (declared []v1alpha1.NodeGate, installed bool, err error) {
	declared, err = reader.Gates(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, describeRequestError(err)
	}
	return declared, true, nil
}

// gateTypes are the types in arguments of the form TYPE/NAME that name gates. The last one is that of
// 'kubectl get -o name'.
var gateTypes = []string{"nodegate", "nodegates", "ng", "nodegates." + v1alpha1.GroupName, "nodegate." + v1alpha1.GroupName}

// parseGateNames returns the names of gates that are given as NAME or TYPE/NAME, each once and in their
// order.
func parseGateNames(args []string) (names []string) {
	for _, arg := range args {
		if kind, name, typed := strings.Cut(arg, "/"); typed && name != "" && slices.Contains(gateTypes, kind) {
			arg = name
		}
		if !slices.Contains(names, arg) {
			names = append(names, arg)
		}
	}
	return names
}

// noSuchGate returns an error for a gate that does not exist. It suggests similar
// names.
func noSuchGate(name string, names []string) error {
	return fmt.Errorf("gate %q not found%s", name, didYouMean(name, names))
}

// checkGateNames returns an error for the first name that is not the name of a known gate.
// It suggests similar names.
func checkGateNames(names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return noSuchGate(name, known)
		}
	}
	return nil
}

// namesOf returns the names of the gates.
func namesOf(declared []v1alpha1.NodeGate) []string {
	names := make([]string, 0, len(declared))
	for i := range declared {
		names = append(names, declared[i].Name)
	}
	return names
}

// keyPolicy reads which taint keys gates may use. A part of the policy that cannot be
// read is nil: the allowed keys if allowedErr is set, and the keys that
// NodeReadinessRules manage if managedErr is set.
func keyPolicy(ctx context.Context, reader *read.Reader, declared []v1alpha1.NodeGate) (p gate.KeyPolicy, allowedErr, managedErr error) {
	policy, allowedErr := reader.AdmissionPolicy(ctx, admission.ConfinementPolicy)
	if allowedErr == nil {
		p.Allowed, p.Stamps, allowedErr = admission.Allowed(policy)
	}
	p.PlainOptOut = gateset.PlainOptOut(declared)
	p.Managed, managedErr = reader.ManagedKeys(ctx)
	return p, allowedErr, managedErr
}
