// SPDX-License-Identifier: Apache-2.0

// Package certificate makes what the API server needs to trust the webhook: a
// serving certificate in a Secret, and whom to trust in the
// MutatingWebhookConfiguration. It works with an administrator's rights, when an
// administrator says so. The controller has no right on either object: whoever may
// write a webhook configuration may have every Secret and every token of the
// cluster sent to a server of their own.
package certificate
