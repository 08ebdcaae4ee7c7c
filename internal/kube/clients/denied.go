// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DeniedByAdmission reports whether an admission policy or webhook denied the request.
// Policies and webhooks choose their status codes freely, so only the text that the API
// server adds identifies them.
func DeniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return strings.Contains(message, "denied request") || strings.Contains(message, "denied the request")
}

// DoesNotExist reports whether the API server answered that the object does not exist. Other answers
// with the same code, such as that of a proxy, do not have the format of the API.
func DoesNotExist(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
