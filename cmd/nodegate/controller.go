// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/install"
)

// controllerFlags are what 'nodegate controller' is told.
type controllerFlags struct {
	kubeconfig  string
	gates       string
	development bool
	birth       admission.Birth
	webhook     controller.Webhook
	process     controller.Process
}

func newControllerCommand() *cobra.Command {
	f := controllerFlags{process: controller.Process{Options: controller.Options{Namespace: defaultNamespace}}}
	options := &f.process.Options
	command := &cobra.Command{
		Use:   "controller",
		Short: "Open gates on nodes that are fit, and close them again where they are not",
		Long: "Open gates on nodes that are fit, and close them again where they are not.\n\n" +
			"What it needs in the cluster is applied first: see 'nodegate manifests --help', and give both the same flags.\n" +
			"It runs until it is told to stop by SIGTERM or Ctrl-C; then it finishes what is in hand, gives its lease\n" +
			"back, and exits with status 0.",
		Example: "  nodegate controller                                              # in a pod, as its ServiceAccount\n" +
			"  nodegate controller --development --kubeconfig nodegate.kubeconfig   # elsewhere, as that ServiceAccount too",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig file; default: the pod's own ServiceAccount")
	flags.StringVar(&f.gates, "gates", "",
		"a directory, such as a mounted ConfigMap, to read NodeGates from (its *.yaml, *.yml and *.json), instead of from the API server, which then needs no CRD")
	flags.StringVar(&f.process.MetricsAddress, "metrics-bind-address", ":8080", "where metrics are served; 0 for nowhere")
	flags.StringVar(&f.process.HealthAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 for nowhere")
	flags.StringVar(&f.process.ProfileAddress, "pprof-bind-address", "0",
		"where profiles of the process are served, in the way of net/http/pprof and to anybody who asks, so that it is best a loopback address; 0 for nowhere")
	flags.BoolVar(&f.process.LeaderElect, "leader-elect", true, "let one replica at a time do the work")
	flags.BoolVar(&f.development, "development", false, "write logs for a person to read, not as JSON")
	flags.StringVar(&options.Namespace, "namespace", options.Namespace, "the namespace of nodegate")
	flags.IntVar(&options.Workers, "workers", 16, "how many nodes are worked on at a time")
	flags.StringSliceVar(&options.TransientTaintPrefixes, "transient-taint-prefixes", nil,
		"beginnings of further taint keys that come and go by themselves, and so say nothing about which daemons belong on a node")
	birthFlag(flags, &f.birth)
	flags.StringVar(&f.webhook.Address, "webhook-bind-address", ":9443", "where the webhook is served, with --birth=webhook")
	allowedTaintKeysFlag(flags, &options.AllowedTaintKeys)
	allowedStampAnnotationsFlag(flags, &options.AllowedStampAnnotations)
	return command
}

func (f *controllerFlags) run(ctx context.Context) error {
	if err := f.validate(); err != nil {
		return err
	}
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	log, libraries := newLogs(os.Stderr, f.development)
	ctrl.SetLogger(libraries)
	klog.SetLogger(libraries.WithName("client"))
	tuneMemory(log)
	f.process.Config, f.process.Options.Log = config, log
	if f.gates != "" {
		f.process.Gates = gatefile.New(f.gates, log)
	}

	api, err := f.process.Client()
	if err != nil {
		return err
	}
	err = checkPermissions(ctx, api, f.installation())
	if err == nil {
		err = checkIdentity(ctx, api, f.process.Options.Namespace)
	}
	switch {
	case ctx.Err() != nil:
		return nil // told to stop before it began
	case err != nil:
		return fmt.Errorf("checking permissions at %s: %w", config.Host, err)
	}
	return f.process.Run(ctx)
}

// validate refuses flags that could only do something else than was meant.
func (f *controllerFlags) validate() error {
	options := &f.process.Options
	if options.Workers < 1 {
		return fmt.Errorf("--workers is %d: it takes one at least", options.Workers)
	}
	if f.birth == admission.ByWebhook {
		f.process.Webhook = &f.webhook
		if err := f.webhook.Validate(); err != nil {
			return fmt.Errorf("--webhook-bind-address: %w", err)
		}
	}
	return f.installation().Validate()
}

// installation is what the controller expects to have been installed.
func (f *controllerFlags) installation() install.Options {
	options := &f.process.Options
	return install.Options{
		Namespace: options.Namespace, ServiceAccount: defaultServiceAccount,
		AllowedTaintKeys: options.AllowedTaintKeys, AllowedStampAnnotations: options.AllowedStampAnnotations,
		WithoutCRD: f.gates != "", Birth: f.birth,
	}
}

// restConfig finds the API server. Requests are not throttled on this side:
// the API server's own priority and fairness does that, and knows better.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not in a cluster: give --kubeconfig")
		}
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = "nodegate"
	config.Wrap(boundBuffers)
	return config, nil
}
