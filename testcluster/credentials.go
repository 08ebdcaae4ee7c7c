// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// credentials are all certificates and keys of a cluster. Three authorities
// separate three kinds of trust, as in production: authenticating as a user of
// the API, impersonating users as the API's front proxy, and access to etcd.
type credentials struct {
	users, frontProxy, etcd *authority

	// Files that the components read.
	usersCA, frontProxyCA, etcdCA pairFiles
	serving                       pairFiles // of all components but etcd
	etcdServing, etcdClient       pairFiles
	proxyClient                   pairFiles
	serviceAccountKey             string

	// admin is the administrator's client certificate, and etcdUser that of
	// the API server towards etcd.
	admin, etcdUser pair
}

// loadCredentials reads the authorities and the service account key from dir,
// creating what is missing, and issues new certificates for everything else.
func loadCredentials(dir string) (*credentials, error) {
	c := &credentials{}
	for _, a := range []struct {
		name   string
		target **authority
		files  *pairFiles
	}{
		{"ca", &c.users, &c.usersCA},
		{"front-proxy-ca", &c.frontProxy, &c.frontProxyCA},
		{"etcd-ca", &c.etcd, &c.etcdCA},
	} {
		loaded, err := loadAuthority(dir, a.name)
		if err != nil {
			return nil, err
		}
		*a.target = loaded
		*a.files = pairFiles{filepath.Join(dir, a.name+".crt"), filepath.Join(dir, a.name+".key")}
	}
	if err := c.issue(dir); err != nil {
		return nil, err
	}
	c.serviceAccountKey = filepath.Join(dir, "service-account.key")
	_, _, err := keyutil.LoadOrGenerateKeyFile(c.serviceAccountKey)
	return c, err
}

// issue creates the certificates that are new for each run.
func (c *credentials) issue(dir string) error {
	var err error
	if c.admin, err = c.users.client("admin", "system:masters"); err != nil {
		return err
	}
	if c.etcdUser, err = c.etcd.client("kube-apiserver"); err != nil {
		return err
	}
	if c.etcdClient, err = c.etcdUser.write(dir, "etcd-client"); err != nil {
		return err
	}
	proxy, err := c.frontProxy.client("front-proxy-client")
	if err != nil {
		return err
	}
	if c.proxyClient, err = proxy.write(dir, "front-proxy-client"); err != nil {
		return err
	}
	serving, err := c.users.server("nodegate-cluster")
	if err != nil {
		return err
	}
	if c.serving, err = serving.write(dir, "serving"); err != nil {
		return err
	}
	etcdServing, err := c.etcd.server("etcd")
	if err != nil {
		return err
	}
	c.etcdServing, err = etcdServing.write(dir, "etcd-serving")
	return err
}
