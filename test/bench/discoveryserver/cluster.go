package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// cluster is one in memory, with secrets in one namespace.
type cluster struct {
	authority *catest.CA

	mu      sync.Mutex
	version int
	secrets map[string]*corev1.Secret
}

func newCluster(authority *catest.CA, groups int) (*cluster, error) {
	c := &cluster{authority: authority, secrets: map[string]*corev1.Secret{shared: nil}}
	for i := range groups {
		c.secrets[fmt.Sprintf("group-%d", i)] = nil
	}
	return c, c.renewAll()
}

func (c *cluster) ID() string { return clusterID }

func (c *cluster) Secret(in, name string) (*corev1.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.secrets[name]; in == namespace && found != nil {
		return found, nil
	}
	return nil, secrets.ErrNotFound
}

func (c *cluster) ConfigMap(string, string) (*corev1.ConfigMap, error) {
	return nil, secrets.ErrNotFound
}

// renew gives a secret a new certificate.
func (c *cluster) renew(name string) error {
	chain, key, err := issue(c.authority, "", name+".example.org")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.secrets[name] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1", ResourceVersion: strconv.Itoa(c.version)},
		Data:       map[string][]byte{"tls.crt": chain, "tls.key": key},
	}
	return nil
}

func (c *cluster) renewAll() error {
	for name := range c.secrets { // the names are those from the start
		if err := c.renew(name); err != nil {
			return err
		}
	}
	return nil
}

// issue makes a certificate with its key, in PEM; a SPIFFE ID may be empty.
func issue(authority *catest.CA, spiffeID string, names ...string) (chain, key []byte, err error) {
	id, err := pki.NewIdentity(spiffeID, names, nil)
	if err != nil {
		return nil, nil, err
	}
	signer, err := pki.GenerateKey("")
	if err != nil {
		return nil, nil, err
	}
	csr, err := pki.CreateCSR(signer, id)
	if err != nil {
		return nil, nil, err
	}
	reply, err := authority.CSRSign(context.Background(), ca.SignRequest{CSR: csr})
	if err != nil {
		return nil, nil, err
	}
	key, err = pki.EncodeKey(signer)
	return reply.Chain, key, err
}

// only are the clusters where there is one.
type only struct{ one *cluster }

func (o only) Local() secrets.Cluster { return o.one }

func (o only) Cluster(id string) (secrets.Cluster, bool) { return o.one, id == clusterID }

// yes is an API server that allows everything.
type yes struct{}

func (yes) Create(_ context.Context, asked *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	asked.Status.Allowed = true
	return asked, nil
}
