// SPDX-License-Identifier: Apache-2.0

// Package model contains only tests. They explore every order in which nodes, kubelets,
// users, other writers and replicas of nodegate can act, within the limits of a small
// model, using the real decisions (internal/gate), signals and patches. A boot that a
// response shows before the watch does (gate.Boot.Ahead) is not part of the model. README.md
// has the rules, and what is explored.
package model
