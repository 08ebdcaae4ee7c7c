// SPDX-License-Identifier: Apache-2.0

// Package certificate makes, keeps and rotates what the API server needs to trust
// the webhook: a certificate authority and a serving certificate in one Secret,
// and the authority's certificate in the MutatingWebhookConfiguration.
//
// There is no gap at any moment: an authority is published, and API servers have
// had time to hear of it, before anybody serves with a certificate of its; and it
// stays published until it has expired, and with it everything that it signed.
//
// One leader at a time is meant to write (Keeper), and two do no harm: the Secret
// is written by compare-and-swap, and what is published comes from a Secret that
// was read later than what it replaces. Every replica reads (Holder).
package certificate
