// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// connection holds the flags that select the API server and the credentials.
type connection struct {
	*genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
}

// requestTimeout is the default of --request-timeout, the timeout of a single request.
const requestTimeout = "15s"

// fallbackHost is the API server that client-go uses if none is configured.
const fallbackHost = "http://localhost:8080"

// config returns the client configuration for the cluster that the flags specify.
func (c *connection) config() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if raw, err := c.ToRawKubeConfigLoader().RawConfig(); config.Host == fallbackHost && *c.APIServer == "" && err == nil && len(raw.Clusters) == 0 {
		return nil, errors.New("no cluster is configured: no kubeconfig was found; set --kubeconfig or the environment variable KUBECONFIG")
	}
	// Inside a pod, client-go does not apply the flag.
	if config.Timeout, err = clientcmd.ParseTimeout(*c.Timeout); err != nil {
		return nil, fmt.Errorf("reading --request-timeout: %w", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// reader returns a reader for the cluster that the flags specify.
func (c *connection) reader() (*read.Reader, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return read.NewReader(config)
}

// installNamespace returns the namespace in which nodegate is installed: that of
// --namespace or the default. The kubeconfig's namespace is not used, because it is
// unrelated to nodegate.
func (c *connection) installNamespace() string {
	return cmp.Or(*c.Namespace, v1alpha1.DefaultNamespace)
}
