// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/bench/report"
)

// A bareList is the least that reading all pods costs: one request, whose response is
// dropped.
type bareList struct {
	client http.Client
	url    string
}

func newBareList(config *rest.Config) (*bareList, error) {
	encryption, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("configuring TLS: %w", err)
	}
	encryption.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: encryption, DisableCompression: true} // does not decompress
	return &bareList{client: http.Client{Transport: transport}, url: config.Host + "/api/v1/pods"}, nil
}

// run reads all pods once, and adds what it cost, in seconds, to the sample.
func (b *bareList) run(ctx context.Context, server int, into report.Sample) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, http.NoBody)
	if err != nil {
		return fmt.Errorf("listing all pods: %w", err)
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	request.Header.Set("Accept-Encoding", "gzip")
	return timed(ctx, server, into, func() error {
		response, err := b.client.Do(request)
		if err != nil {
			return fmt.Errorf("listing all pods: %w", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("listing all pods: %s", response.Status)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return fmt.Errorf("receiving all pods: %w", err)
		}
		return nil
	})
}
