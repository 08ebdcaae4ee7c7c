// SPDX-License-Identifier: Apache-2.0

// Package prometheus tests what nodegate gives to Prometheus and Grafana: the
// alerts and the dashboard of the chart, with Prometheus' own engine. It is a module
// of its own, so that nodegate does not depend on Prometheus' server.
package prometheus
