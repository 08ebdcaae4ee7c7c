// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/testcluster"
)

// Metrics contains all metrics of a process at one moment, by name.
type Metrics map[string]*dto.MetricFamily

// OfAPIServer returns the API server's metrics.
func OfAPIServer(ctx context.Context, c *testcluster.Cluster) (Metrics, error) {
	config := c.Admin()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return scrape(ctx, client, config.Host)
}

// OfEtcd returns etcd's metrics.
func OfEtcd(ctx context.Context, c *testcluster.Cluster) (Metrics, error) {
	endpoint, credentials, err := c.Etcd()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: credentials}
	defer transport.CloseIdleConnections()
	return scrape(ctx, &http.Client{Transport: transport}, endpoint)
}

// Of returns the metrics that are served at an address over plain HTTP.
func Of(ctx context.Context, address string) (Metrics, error) {
	return scrape(ctx, http.DefaultClient, "http://"+address)
}

func scrape(ctx context.Context, client *http.Client, host string) (Metrics, error) {
	content, err := Get(ctx, client, host+"/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("parsing metrics of %s: %w", host, err)
	}
	return families, nil
}

// Allocated returns the number of objects that a Go program has allocated since it
// started, and their size in bytes.
func (m Metrics) Allocated() (objects, bytes float64) {
	return m.Sum("go_memstats_mallocs_total", nil), m.Sum("go_memstats_alloc_bytes_total", nil)
}

// Get returns the response to a GET request. Any status other than OK is an error.
func Get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", url, err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("reading %s: %s", url, response.Status)
	}
	return content, nil
}

// liveHeap matches the heap size in the text form of a heap profile. Unlike the
// size in metrics, it is read after the collection and before the response is
// allocated.
var liveHeap = regexp.MustCompile(`(?m)^# HeapAlloc = ([0-9]+)$`)

// LiveHeap makes a process that serves net/http/pprof collect its garbage, and
// returns the remaining bytes of its heap.
func LiveHeap(ctx context.Context, client *http.Client, host string) (bytes int64, err error) {
	profile, err := Get(ctx, client, host+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := liveHeap.FindSubmatch(profile)
	if found == nil {
		return 0, fmt.Errorf("reading the heap profile of %s: HeapAlloc is missing", host)
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// Versions returns the versions of the components, such as "Kubernetes v1.37.1,
// etcd 3.7.3, go1.26.8".
func Versions(ctx context.Context, c *testcluster.Cluster) (string, error) {
	server, err := OfAPIServer(ctx, c)
	if err != nil {
		return "", err
	}
	etcd, err := OfEtcd(ctx, c)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Kubernetes %s, etcd %s, %s", server.label("kubernetes_build_info", "git_version"),
		etcd.label("etcd_server_version", "server_version"), runtime.Version()), nil
}

// label returns the value of a label of a metric that has only one series.
func (m Metrics) label(name, label string) string {
	for _, metric := range m[name].GetMetric() {
		for _, pair := range metric.GetLabel() {
			if pair.GetName() == label {
				return pair.GetValue()
			}
		}
	}
	return "of unknown version"
}

// Sum returns the sum of the counters and gauges with this name and at least
// these labels.
func (m Metrics) Sum(name string, labels map[string]string) float64 {
	var total float64
	for _, metric := range m[name].GetMetric() {
		matching := 0
		for _, pair := range metric.GetLabel() {
			if value, wanted := labels[pair.GetName()]; wanted && value == pair.GetValue() {
				matching++
			}
		}
		if matching == len(labels) {
			total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return total
}
