// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/election"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/kube/connection"
)

// controllerFlags holds the flags of 'nodegate controller'.
type controllerFlags struct {
	kubeconfig  string
	gates       string
	development bool
	// metricsSecure specifies whether the API server authorizes readers of metrics.
	metricsSecure bool
	birth         admission.Birth
	webhook       controller.Webhook
	process       controller.Process
}

func newControllerCommand() *cobra.Command {
	f := controllerFlags{process: controller.Process{Options: controller.Options{Namespace: defaultNamespace}}}
	options := &f.process.Options
	command := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller, which opens and closes gates on nodes",
		Long: "Run the controller, which opens gates on nodes that are ready for pods, and closes them again on nodes that are not.\n\n" +
			"Apply the objects that it requires in the cluster first: see 'nodegate manifests --help', and pass both commands\n" +
			"the same flags. The controller runs until it receives SIGTERM or Ctrl-C. It then finishes pending writes, releases\n" +
			"its lease, and exits with status 0.",
		Example: "  nodegate controller                                              # in a pod, as its ServiceAccount\n" +
			"  nodegate controller --development --kubeconfig nodegate.kubeconfig   # outside of the cluster, as the same ServiceAccount",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig file (default the pod's ServiceAccount)")
	flags.StringVar(&f.gates, "gates", "",
		"directory, such as a mounted ConfigMap, from which NodeGates are read (*.yaml, *.yml and *.json) instead of from the API server, which then needs no CRD")
	flags.StringVar(&f.process.Metrics.Address, "metrics-bind-address", ":8080", "address at which metrics and /nodes/<name> are served; 0 disables them")
	metricsSecureFlag(flags, &f.metricsSecure)
	flags.StringVar(&f.process.Metrics.CertificateDir, "metrics-certificate-dir", "",
		"directory, such as a mounted Secret, with tls.crt and tls.key for metrics (default a self-signed certificate in memory)")
	flags.StringVar(&f.process.HealthAddress, "health-probe-bind-address", ":8081", "address at which /healthz and /readyz are served; 0 disables them")
	flags.StringVar(&f.process.ProfileAddress, "pprof-bind-address", "0",
		"address at which net/http/pprof profiles are served without authentication, preferably a loopback address; 0 disables them")
	flags.BoolVar(&f.process.LeaderElect, "leader-elect", true, "elect a leader among replicas; only the leader changes nodes")
	flags.DurationVar(&f.process.LeaseDuration, "leader-elect-lease-duration", election.DefaultDuration,
		"time since the leader last renewed its Lease after which another replica may lead; whole seconds, at least 2s")
	flags.StringVar(&f.process.Identity, "leader-elect-identity", "",
		"unique name of this replica in the Lease, such as that of its pod: after a restart, the replica leads again immediately (default a new name for each process)")
	flags.BoolVar(&f.development, "development", false, "write human-readable logs instead of JSON")
	flags.StringVar(&options.Namespace, "namespace", options.Namespace, "namespace in which nodegate is installed")
	flags.IntVar(&options.Workers, "workers", controller.DefaultWorkers, "number of nodes that are processed concurrently")
	flags.StringSliceVar(&options.TransientTaintPrefixes, "transient-taint-prefixes", nil,
		"additional prefixes of taint keys that are temporary; nodegate ignores such taints when it determines which daemons should run on a node")
	birthFlag(flags, &f.birth)
	flags.StringVar(&f.webhook.Address, "webhook-bind-address", ":9443", "address at which the webhook is served with --birth=webhook")
	flags.StringVar(&f.webhook.CertificateDir, "webhook-certificate-dir", "/etc/nodegate/webhook",
		"directory, such as a mounted Secret, with tls.crt and tls.key of the webhook, with --birth=webhook")
	flags.StringVar(&f.webhook.ClientCAFile, "webhook-client-ca-file", "",
		"PEM file with the certificate authorities of the API servers' client certificates; the webhook then rejects other clients (default no client authentication)")
	flags.StringSliceVar(&f.webhook.ClientNames, "webhook-client-names", nil,
		"comma-separated common names that these client certificates may have (default any)")
	allowedTaintKeysFlag(flags, &options.AllowedTaintKeys)
	allowedStampAnnotationsFlag(flags, &options.AllowedStampAnnotations)
	plainOptOutFlag(flags, &options.PlainOptOut)
	return command
}

func (f *controllerFlags) run(ctx context.Context) error {
	if err := f.validate(); err != nil {
		return err
	}
	tuneProfiling(f.process.ProfileAddress)
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	log, libraries := newLogs(os.Stderr, f.development)
	ctrl.SetLogger(libraries)
	klog.SetLogger(libraries.WithName("client"))
	redirectStandardLog(libraries)
	tuneProcessors()
	tuneMemory(ctx, log, memlimit.FromCgroup)
	f.process.Config, f.process.Options.Log = config, log
	if f.gates != "" {
		f.process.Gates = gatefile.New(f.gates, log)
	}

	api, err := f.process.Client()
	if err != nil {
		return err
	}
	err = checkPermissions(ctx, log, api, f.installation())
	if err == nil {
		err = checkIdentity(ctx, api, f.process.Options.Namespace)
	}
	switch {
	case ctx.Err() != nil:
		return nil // stopped before it started
	case err != nil:
		return fmt.Errorf("checking permissions at %s: %w", config.Host, err)
	}
	return f.process.Run(ctx)
}

// validate returns an error for invalid combinations of flags.
func (f *controllerFlags) validate() error {
	options := &f.process.Options
	if options.Workers < 1 {
		return fmt.Errorf("--workers is %d: must be at least 1", options.Workers)
	}
	if err := election.ValidateDuration(f.process.LeaseDuration); err != nil {
		return fmt.Errorf("--leader-elect-lease-duration: %w", err)
	}
	if f.process.Metrics.Open = !f.metricsSecure; f.process.Metrics.Open && f.process.Metrics.CertificateDir != "" {
		return errors.New("--metrics-certificate-dir requires TLS, but --metrics-secure=false serves metrics with plain HTTP: omit one of them")
	}
	if f.birth == admission.ByWebhook {
		f.process.Webhook = &f.webhook
		if len(f.webhook.ClientNames) > 0 && f.webhook.ClientCAFile == "" {
			return errors.New("--webhook-client-names requires --webhook-client-ca-file: specify the certificate authorities of these clients, or omit the names")
		}
		if err := f.webhook.Validate(); err != nil {
			return fmt.Errorf("--webhook-bind-address: %w", err)
		}
	}
	return f.installation().Validate()
}

// installation returns the options of the installation that the controller requires.
func (f *controllerFlags) installation() install.Options {
	options := &f.process.Options
	return install.Options{
		Namespace: options.Namespace, ServiceAccount: defaultServiceAccount,
		AllowedTaintKeys: options.AllowedTaintKeys, AllowedStampAnnotations: options.AllowedStampAnnotations,
		PlainOptOut: options.PlainOptOut, WithoutCRD: f.gates != "", Birth: f.birth,
		OpenMetrics: f.process.Metrics.Open || f.process.Metrics.Address == "0",
	}
}

// restConfig returns the client configuration. Requests are not throttled by the client,
// because the API server's priority and fairness does so.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = podConfig()
	} else if config, err = fileConfig(kubeconfig); err != nil {
		err = fmt.Errorf("reading kubeconfig: %w", err)
	}
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "nodegate"
	config.Wrap(connection.With(connections()))
	return config, nil
}

// podConfig returns the client configuration of the ServiceAccount of the pod in which it runs.
func podConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("not in a cluster: use --kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("reading the token of the pod's ServiceAccount, which requires automountServiceAccountToken: true: %w", err)
	}
	return config, nil
}

// fileConfig returns the client configuration of the current context of a kubeconfig. If there is none,
// it returns an error: clientcmd.BuildConfigFromFlags would use the cluster of the pod in which it runs.
func fileConfig(path string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	kubeconfig, err := rules.Load()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, "", &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("no context is selected, or its cluster has no server: check current-context in %s", path)
	}
	return config, err
}
