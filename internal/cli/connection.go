// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// connection holds the flags that select the API server and the credentials.
type connection struct {
	*genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	// timeout is the value of --request-timeout. It is not a field of ConfigFlags, because client-go uses
	// the cluster of the pod in which it runs only if the configuration is otherwise the default.
	timeout string
	// connected is true if the configuration is valid, and commands if a kubectl command was written to
	// one of the streams.
	connected bool
	commands  atomic.Bool
}

// requestTimeout is the default of --request-timeout, the timeout of a single request.
const requestTimeout = "15s"

// fallbackHost is the API server that client-go uses if none is configured.
const fallbackHost = "http://localhost:8080"

func newConnection(streams genericiooptions.IOStreams) *connection {
	c := &connection{ConfigFlags: genericclioptions.NewConfigFlags(true), streams: streams}
	c.Timeout = nil
	c.streams.Out, c.streams.ErrOut = commandWatcher{streams.Out, &c.commands}, commandWatcher{streams.ErrOut, &c.commands}
	return c
}

func (c *connection) addConnectionFlags(flags *pflag.FlagSet) {
	c.AddFlags(flags)
	flags.StringVar(&c.timeout, "request-timeout", requestTimeout, "The length of time to wait before giving up on a single server request. "+
		"Non-zero values should contain a corresponding time unit (e.g. 1s, 2m, 3h). A value of zero means don't timeout requests.")
	flags.Lookup("namespace").Usage = "The namespace in which nodegate is installed (default " + v1alpha1.DefaultNamespace + ")"
}

// config returns the client configuration for the cluster that the flags specify.
func (c *connection) config() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	raw, err := c.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if err := c.checkCluster(&raw, config.Host); err != nil {
		return nil, err
	}
	if config.Timeout, err = clientcmd.ParseTimeout(c.timeout); err != nil {
		return nil, fmt.Errorf("reading --request-timeout: %w", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	c.connected = true
	return config, nil
}

// checkCluster returns an error if neither the flags nor the kubeconfig specify an API server. client-go
// would then contact another one: that of the pod in which it runs, or its default, host. Only without a
// kubeconfig, that of the pod is intended.
func (c *connection) checkCluster(kubeconfig *clientcmdapi.Config, host string) error {
	contextName, clusterName := cmp.Or(*c.Context, kubeconfig.CurrentContext), *c.ClusterName
	if selected := kubeconfig.Contexts[contextName]; selected != nil {
		clusterName = cmp.Or(clusterName, selected.Cluster)
	}
	cluster := kubeconfig.Clusters[clusterName]
	switch {
	case *c.APIServer != "", cluster != nil && cluster.Server != "":
		return nil
	case *c.KubeConfig == "" && clientcmdapi.IsConfigEmpty(kubeconfig):
		if host == fallbackHost {
			return errors.New("no cluster is configured: no kubeconfig was found; set --kubeconfig or the environment variable KUBECONFIG")
		}
		return nil
	case contextName == "" && clusterName == "":
		return errors.New("no context is selected: the kubeconfig has no current-context; use --context, or 'kubectl config use-context'")
	}
	return fmt.Errorf("the kubeconfig contains no API server for context %q, cluster %q", contextName, clusterName)
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
