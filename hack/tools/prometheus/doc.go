// SPDX-License-Identifier: Apache-2.0

// Package prometheus tests the alerts and the dashboard of the chart with the engine of
// Prometheus. It is a separate module, so that nodegate does not depend on the Prometheus
// server.
package prometheus
