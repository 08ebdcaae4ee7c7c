// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime is the validity of a ServiceAccount's token. It exceeds the
// duration of any test, and of most demonstrations.
const tokenLifetime = 24 * time.Hour

// Admin returns the configuration of a client with all permissions, a member of
// system:masters.
//
// Like all configurations that a Cluster returns, it is a copy that the caller
// may change, and it has no client-side rate limit.
func (c *Cluster) Admin() *rest.Config {
	return c.clientConfig(c.credentials.admin)
}

// Node returns the configuration of a client that authenticates as the kubelet of
// the named node, which need not exist. The Node authorizer and the
// NodeRestriction admission plugin confine it.
func (c *Cluster) Node(name string) *rest.Config {
	return c.User("system:node:"+name, "system:nodes")
}

// User returns the configuration of a client that authenticates, by a client
// certificate, as a user in groups. RBAC determines its permissions.
func (c *Cluster) User(name string, groups ...string) *rest.Config {
	certificate, err := c.credentials.users.client(name, groups...)
	if err != nil {
		// The authority has issued certificates before, and a name cannot be
		// wrong: this is a failure of the random number generator.
		panic(fmt.Sprintf("cluster: issuing a certificate for %s: %v", name, err))
	}
	return c.clientConfig(certificate)
}

// ServiceAccount returns the configuration of a client that authenticates as a
// ServiceAccount, with a token from the TokenRequest API. The ServiceAccount must
// exist. The token is valid for 24 hours.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	request, err = client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := c.clientConfig(pair{})
	config.BearerToken = request.Status.Token
	return config, nil
}

// Etcd returns the URL at which etcd serves its clients, and the API server's
// credentials, which have all permissions. The caller must write only what
// another API server could have written.
func (c *Cluster) Etcd() (endpoint string, credentials *tls.Config, err error) {
	credentials, err = tlsConfig(c.credentials.etcd, c.credentials.etcdUser)
	if err != nil {
		return "", nil, fmt.Errorf("loading etcd's client certificate: %w", err)
	}
	return "https://" + address(c.port(Etcd)), credentials, nil
}

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string {
	return c.file("admin.kubeconfig")
}

func (c *Cluster) clientConfig(certificate pair) *rest.Config {
	return &rest.Config{
		Host: "https://" + address(c.port(APIServer)),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.credentials.users.pair.certificate,
			CertData: certificate.certificate,
			KeyData:  certificate.key,
		},
		QPS: -1,
	}
}

// WriteKubeconfig writes a client configuration that a Cluster returned as a
// kubeconfig file, which only its owner can read.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "nodegate"
	kubeconfig := clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", path, err)
	}
	return nil
}
