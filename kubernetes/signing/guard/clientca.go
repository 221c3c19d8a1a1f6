package guard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Where an API server publishes the CAs that it takes clients' certificates of:
// https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer
const (
	authNamespace = "kube-system"
	authConfigMap = "extension-apiserver-authentication"
)

// authKeys are the keys with CAs. One of the second signs as any user: it stands for the
// aggregation layer's front proxy.
var authKeys = []string{"client-ca-file", "requestheader-client-ca-file"}

// ClientCAConfig configures a [ClientCA].
type ClientCAConfig struct {
	// Cluster is the verified name of the cluster. Required.
	Cluster string
	// Client reaches its API server. It needs get on the ConfigMap
	// kube-system/extension-apiserver-authentication, as the Role
	// extension-apiserver-authentication-reader of kube-system gives. Required.
	Client kubernetes.Interface
	// Former is who knew the same cluster through a client that has been replaced, or nil. What
	// it knew holds until the first look through Client succeeds, so that a rotated kubeconfig
	// leaves no moment in which a client CA is unknown.
	Former *ClientCA
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// ClientCA knows the client CAs of one cluster's API server. While these cannot be read, it keeps
// what it knew; before they could be, nothing passes. It is safe for concurrent use.
type ClientCA struct {
	cfg ClientCAConfig

	looked chan struct{} // closed by first
	first  func()        // after the first look, or at once where Former knew the client CAs

	mu    sync.Mutex
	known map[string]string // where a CA stands, by its public key; nil before one succeeds
	err   error             // of the last look
	// passed are the certificates that were looked up in known last, for each authority and kind: a set
	// is looked up once, as those of all requests are the same.
	passed map[[2]string][]*x509.Certificate
}

// NewClientCA checks the settings. It asks nothing.
func NewClientCA(cfg ClientCAConfig) (*ClientCA, error) {
	if cfg.Cluster == "" || cfg.Client == nil {
		return nil, errors.New("guard: ClientCAConfig.Cluster and Client are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	g := &ClientCA{cfg: cfg, looked: make(chan struct{}), err: errors.New("not read yet"), passed: map[[2]string][]*x509.Certificate{}}
	g.first = sync.OnceFunc(func() { close(g.looked) })
	if former := cfg.Former; former != nil {
		g.cfg.Former = nil // keep no chain of them
		g.inherit(former)
	}
	return g, nil
}

func (g *ClientCA) inherit(former *ClientCA) {
	former.mu.Lock()
	defer former.mu.Unlock()
	if g.known = former.known; g.known != nil {
		g.first()
	}
}

// Run reads the client CAs until ctx ends: each 5 minutes, and sooner while that fails.
func (g *ClientCA) Run(ctx context.Context) {
	repeat(ctx, func(ctx context.Context) error {
		defer g.first()
		return g.look(ctx)
	})
}

// After returns run as it is to be run beside Run: not before the first look has ended, well or not. What
// Former knew is enough to begin.
// What run asks an authority for sooner would be refused, and come back in [ca.Error.RetryAfter].
func (g *ClientCA) After(run func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-g.looked:
			run(ctx)
		case <-ctx.Done():
		}
	}
}

// Ready returns nil once the client CAs are known.
func (g *ClientCA) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known != nil {
		return nil
	}
	return wait(ca.Errorf(ca.Unavailable, "the client CAs of cluster %q are not known, so no authority can be verified not to be one of them: %w", g.cfg.Cluster, g.err), soon)
}

// Check returns an error if one of an authority's roots is a client CA of the API server: the same
// certificate, or another with its key, such as a cross-signed one. The error is Unavailable before
// the client CAs are known, and NotConfigured for a client CA.
func (g *ClientCA) Check(authority string, roots *pki.Bundle) error {
	return g.check(authority, "root", roots.Certificates())
}

// CheckChain is Check for what signed the leaf of a chain (PEM): an intermediate, too, can be a
// client CA.
func (g *ClientCA) CheckChain(authority string, chain []byte) error {
	above, err := aboveLeaf(authority, chain)
	if err != nil {
		return err
	}
	return g.check(authority, "intermediate", above)
}

// aboveLeaf returns the intermediates of a chain. An authority whose chain cannot be read needs
// mending as much as one that is a client CA: each try costs a certificate. The leaf itself is the
// engine's to parse.
func aboveLeaf(authority string, chain []byte) (above []*x509.Certificate, err error) {
	blocks := 0
	for block, err := range pki.Blocks(chain) {
		var cert *x509.Certificate
		switch {
		case err == nil && block.Type != "CERTIFICATE":
			err = fmt.Errorf("it has a block %.64q", block.Type)
		case err == nil && blocks > 0:
			cert, err = pki.ParseCertificate(block.Bytes)
		}
		if err != nil {
			return nil, unreadable(authority, err)
		}
		if blocks++; cert != nil {
			above = append(above, cert)
		}
	}
	if blocks == 0 {
		return nil, unreadable(authority, errors.New("it has no certificate"))
	}
	return above, nil
}

func unreadable(authority string, err error) error {
	return wait(ca.Errorf(ca.NotConfigured, "the chain of authority %q: %w", authority, err), late)
}

func (g *ClientCA) check(authority, what string, certs []*x509.Certificate) error {
	if err := g.Ready(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := [2]string{authority, what}
	if last, looked := g.passed[of]; looked && slices.EqualFunc(last, certs, (*x509.Certificate).Equal) {
		return nil
	}
	for _, cert := range certs {
		if where, bad := g.known[keyOf(cert)]; bad {
			return wait(ca.Errorf(ca.NotConfigured,
				"authority %q is a client CA of cluster %q and could sign an administrator: its %s %s is in %s of %s/%s; use another authority",
				authority, g.cfg.Cluster, what, pki.Fingerprint(cert), where, authNamespace, authConfigMap), late)
		}
	}
	g.passed[of] = certs
	return nil
}

func (g *ClientCA) look(ctx context.Context) error {
	known, err := g.read(ctx)
	if ctx.Err() != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.known, g.err = known, nil
		clear(g.passed)
		return nil
	}
	g.err = errors.New(text.Clean(err.Error()))
	g.cfg.Log.Warn("cannot read the API server's client CAs", "cluster", g.cfg.Cluster, "known", g.known != nil, "error", g.err)
	return err
}

func (g *ClientCA) read(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := g.cfg.Client.CoreV1().ConfigMaps(authNamespace).Get(ctx, authConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err // not found, too: the API server makes it, a little after its start
	}
	return clientCAs(found)
}

// clientCAs returns where each CA stands, by its public key.
func clientCAs(config *corev1.ConfigMap) (map[string]string, error) {
	known := map[string]string{}
	for _, key := range authKeys {
		certs, err := parse([]byte(config.Data[key]))
		if err != nil {
			return nil, fmt.Errorf("%s of ConfigMap %s/%s: %w", key, authNamespace, authConfigMap, err)
		}
		for _, cert := range certs {
			known[keyOf(cert)] = key
		}
	}
	return known, nil
}

// parse reads certificates as the API server does, which skips malformed blocks and those of
// other types.
func parse(file []byte) ([]*x509.Certificate, error) {
	if len(file) > pki.MaxPEM {
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", len(file), pki.MaxPEM)
	}
	var certs []*x509.Certificate
	for block, err := range pki.Blocks(file) {
		if err != nil || block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := pki.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// keyOf returns what tells a certificate's public key from others, however it is encoded.
func keyOf(cert *x509.Certificate) string {
	der, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil { // a type of key that Go does not know
		return string(cert.RawSubjectPublicKeyInfo)
	}
	return string(der)
}
