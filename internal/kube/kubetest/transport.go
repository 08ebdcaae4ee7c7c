// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"net/http"
	"net/http/httptest"
)

// Transport is a transport that calls a function instead of a server. It opens no connection, so
// clients can be tested in a synctest bubble.
type Transport func(http.ResponseWriter, *http.Request)

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	t(w, r)
	return w.Result(), nil
}
