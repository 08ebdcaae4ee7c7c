// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	_ "embed"
	"fmt"
	"os"
	"strconv"
)

//go:embed config/audit-policy.yaml
var defaultAuditPolicy string

// arguments returns the command line of a component, without the program.
func (c *Cluster) arguments(component Component) []string {
	var args []string
	switch component {
	case Etcd:
		args = c.etcdArguments()
	case APIServer:
		args = c.apiServerArguments()
	case Scheduler:
		args = c.controllerArguments(component)
	case ControllerManager:
		args = append(c.controllerArguments(component),
			"--cluster-name=nodegate",
			"--use-service-account-credentials",
			// At the default of 20 requests per second, fetching a token for
			// each controller takes longer than all the rest of the start.
			"--kube-api-qps=500",
			"--kube-api-burst=500",
			"--service-account-private-key-file="+c.credentials.serviceAccountKey,
			"--root-ca-file="+c.credentials.usersCA.certificate,
			"--cluster-signing-cert-file="+c.credentials.usersCA.certificate,
			"--cluster-signing-key-file="+c.credentials.usersCA.key,
		)
	case Controllers:
		args = []string{
			"--kubeconfig=" + c.componentKubeconfig(Controllers),
			"--address=" + address(c.port(Controllers)),
			"--tls-cert-file=" + c.credentials.serving.certificate,
			"--tls-private-key-file=" + c.credentials.serving.key,
		}
	case KWOK:
		args = c.kwokArguments()
	}
	return append(args, c.options.ExtraArgs[component]...)
}

func (c *Cluster) etcdArguments() []string {
	url := "https://" + address(c.port(Etcd))
	return []string{
		"--data-dir=" + c.file("etcd"),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		// etcd requires a peer port, although there are no peers.
		"--listen-peer-urls=http://127.0.0.1:0",
		"--cert-file=" + c.credentials.etcdServing.certificate,
		"--key-file=" + c.credentials.etcdServing.key,
		"--trusted-ca-file=" + c.credentials.etcdCA.certificate,
		"--client-cert-auth",
		// Milliseconds. There are no other candidates, so do not wait for the
		// default second.
		"--heartbeat-interval=10",
		"--election-timeout=100",
		// Writes survive the end of etcd, which tests restart and kill, but not a
		// crash of the machine.
		"--unsafe-no-fsync",
		"--logger=zap",
		"--log-outputs=stderr",
	}
}

func (c *Cluster) apiServerArguments() []string {
	args := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port(APIServer)),
		"--cert-dir=" + c.file("pki"),
		"--tls-cert-file=" + c.credentials.serving.certificate,
		"--tls-private-key-file=" + c.credentials.serving.key,
		"--client-ca-file=" + c.credentials.usersCA.certificate,

		"--etcd-servers=https://" + address(c.port(Etcd)),
		"--etcd-cafile=" + c.credentials.etcdCA.certificate,
		"--etcd-certfile=" + c.credentials.etcdClient.certificate,
		"--etcd-keyfile=" + c.credentials.etcdClient.key,

		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",

		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.credentials.serviceAccountKey,
		"--service-account-signing-key-file=" + c.credentials.serviceAccountKey,

		"--requestheader-client-ca-file=" + c.credentials.frontProxyCA.certificate,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.credentials.proxyClient.certificate,
		"--proxy-client-key-file=" + c.credentials.proxyClient.key,

		"--service-cluster-ip-range=" + serviceRange,
		// A loopback address must not be in the Endpoints of the Service
		// "kubernetes", and no pod needs them here.
		"--endpoint-reconciler-type=none",
	}
	return append(args, c.auditArguments()...)
}

func (c *Cluster) auditArguments() []string {
	if !c.options.Audit {
		return nil
	}
	return []string{
		"--audit-policy-file=" + c.file("audit-policy.yaml"),
		"--audit-log-path=" + c.AuditLog(),
		"--audit-log-format=json",
		// Write requests to the log before they are answered.
		"--audit-log-mode=blocking",
		// Megabytes: the log is never rotated, so that it is complete.
		"--audit-log-maxsize=1000000",
	}
}

// controllerArguments returns the flags that the scheduler and the controller
// manager have in common.
func (c *Cluster) controllerArguments(component Component) []string {
	kubeconfig := c.componentKubeconfig(component)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port(component)),
		"--tls-cert-file=" + c.credentials.serving.certificate,
		"--tls-private-key-file=" + c.credentials.serving.key,
		// Only one of each runs. After a restart, it must not wait for the
		// previous process's Lease.
		"--leader-elect=false",
	}
}

func (c *Cluster) kwokArguments() []string {
	return []string{
		"--kubeconfig=" + c.componentKubeconfig(KWOK),
		"--config=" + c.file("stages.yaml"),
		"--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
		"--node-lease-duration-seconds=40",
		"--server-address=" + address(c.port(KWOK)),
		"--tls-cert-file=" + c.credentials.serving.certificate,
		"--tls-private-key-file=" + c.credentials.serving.key,
	}
}

func (c *Cluster) componentKubeconfig(component Component) string {
	return c.file(string(component) + ".kubeconfig")
}

// writeConfiguration writes the files that command lines refer to and that do
// not depend on ports.
func (c *Cluster) writeConfiguration() error {
	stages, err := mergeStages(c.options.Stages)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("stages.yaml"), []byte(stages), 0o600); err != nil {
		return fmt.Errorf("writing the KWOK stages: %w", err)
	}
	policy := c.options.AuditPolicy
	if policy == "" {
		policy = defaultAuditPolicy
	}
	if err := os.WriteFile(c.file("audit-policy.yaml"), []byte(policy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return nil
}

// writeKubeconfigs writes the administrator's kubeconfig and those of the
// components. The API server's port must be final.
func (c *Cluster) writeKubeconfigs() error {
	if err := WriteKubeconfig(c.Kubeconfig(), c.Admin()); err != nil {
		return err
	}
	for component, user := range map[Component]string{
		Scheduler:         "system:kube-scheduler",
		ControllerManager: "system:kube-controller-manager",
	} {
		if err := WriteKubeconfig(c.componentKubeconfig(component), c.User(user)); err != nil {
			return err
		}
	}
	// KWOK simulates every kubelet, and Controllers has several controllers with one
	// identity. Both require this role.
	for _, component := range []Component{KWOK, Controllers} {
		if err := WriteKubeconfig(c.componentKubeconfig(component), c.User(string(component), "system:masters")); err != nil {
			return err
		}
	}
	return nil
}
