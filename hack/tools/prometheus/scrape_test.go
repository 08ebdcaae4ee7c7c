// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"regexp"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"
)

var scrapeBlock = regexp.MustCompile("(?s)```yaml\n(scrape_configs:\n.*?)```")

// The role endpointslice discovers all container ports of a pod as targets, also those that are
// not ports of the Service. The configuration on the page keeps the metrics port only.
func TestScrapeConfig(t *testing.T) {
	var config struct {
		ScrapeConfigs []struct {
			RelabelConfigs []*relabel.Config `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	block := scrapeBlock.FindStringSubmatch(read(t, root+"docs/metrics.md"))
	if block == nil {
		t.Fatal("docs/metrics.md has no scrape_configs")
	}
	if err := yaml.Unmarshal([]byte(block[1]), &config); err != nil || len(config.ScrapeConfigs) != 1 {
		t.Fatalf("%+v, %v", config, err)
	}
	rules := config.ScrapeConfigs[0].RelabelConfigs
	for _, rule := range rules {
		if err := rule.Validate(model.UTF8Validation); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		service, servicePort, containerPort string
		kept                                bool
	}{
		"metrics":                    {"nodegate-metrics", "metrics", "metrics", true},
		"health, not in the Service": {"nodegate-metrics", "", "health", false},
		"webhook":                    {"nodegate-webhook", "", "webhook", false},
		"another Service":            {"other", "metrics", "metrics", false},
	} {
		target := map[string]string{
			"__meta_kubernetes_service_name": test.service, "__meta_kubernetes_pod_name": "nodegate-1",
			"__meta_kubernetes_pod_container_port_name": test.containerPort,
		}
		if test.servicePort != "" {
			target["__meta_kubernetes_endpointslice_port_name"] = test.servicePort
		}
		builder := labels.NewBuilder(labels.FromMap(target))
		kept := relabel.ProcessBuilder(builder, rules...)
		if got := builder.Labels(); kept != test.kept || kept && got.Get("pod") != "nodegate-1" {
			t.Errorf("%s: kept is %t, want %t; labels %s", name, kept, test.kept, got)
		}
	}
}
