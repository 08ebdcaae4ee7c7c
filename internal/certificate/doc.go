// SPDX-License-Identifier: Apache-2.0

// Package certificate creates the webhook's serving certificate in a Secret, and
// publishes its authority in the MutatingWebhookConfiguration. An administrator runs
// it with the administrator's own credentials. The controller has no permission for
// either object: with the permission to write a webhook configuration, an attacker
// could have every Secret and every token of the cluster sent to a server of their
// own.
package certificate
