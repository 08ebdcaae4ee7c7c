// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNotServed is wrapped by the error of a feed if the API server does not serve the
// feed's kind.
var ErrNotServed = errors.New("the API server does not serve ResourceSlices of resource.k8s.io/v1, which requires Kubernetes 1.34 " +
	"or newer: enable dynamic resource allocation, or remove the gate's resourceSlices signal")

// ExplainNotServed wraps err in ErrNotServed if it is a NotFound error.
func ExplainNotServed(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (%w)", ErrNotServed, err)
	}
	return err
}
