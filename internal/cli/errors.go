// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/printer"
)

// describeRequestError adds to the error of a request that the request was
// interrupted or that the API server could not be reached. It returns any other error
// unchanged.
func describeRequestError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case isNetworkError(err):
		return fmt.Errorf("cannot reach the API server: %w", err)
	}
	return err
}

// isNetworkError reports whether a request failed because of the network. A url.Error alone does not
// show this: it also contains the errors of credential plugins.
func isNetworkError(err error) bool {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// similar returns up to three names that resemble name, by cobra's measure of
// similarity.
func similar(name string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		all.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	found := all.SuggestionsFor(name)
	return found[:min(len(found), 3)]
}

// didYouMean returns a suffix for an error message that suggests similar names, or "".
func didYouMean(name string, names []string) string {
	if alike := similar(name, names); len(alike) > 0 {
		return "; did you mean " + printer.Enumerate(alike, "or") + "?"
	}
	return ""
}
