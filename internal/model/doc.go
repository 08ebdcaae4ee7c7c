// SPDX-License-Identifier: Apache-2.0

// Package model contains only tests. They explore every order in which nodes, kubelets,
// users, other writers and replicas of nodegate can act, within the limits of a small
// model, using the real decisions (internal/gate), signals and patches.
package model
