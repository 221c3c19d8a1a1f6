package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	meshapi "istio.io/api/mesh/v1alpha1"
	securityapi "istio.io/api/security/v1beta1"
	"istio.io/istio/pkg/cluster"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/security"
	"istio.io/istio/security/pkg/cmd"
	"istio.io/istio/security/pkg/pki/ca"
	caserver "istio.io/istio/security/pkg/server/ca"
	"istio.io/istio/security/pkg/server/ca/authenticate"
	"istio.io/istio/security/pkg/server/ca/authenticate/kubeauth"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// authority serves istiod's CA on CA_LISTEN, with the files of its Secret cacerts in ROOT_CA_DIR and
// a certificate for the names in CA_NAMES. It takes client certificates, and the tokens that the API
// server of KUBECONFIG reviews; with CA_JWT_ISSUER, those of that issuer instead, whose keys are at
// CA_JWKS_URL. A line of JSON says where it listens.
func authority(ctx context.Context) error {
	signer, err := pluggedIn(os.Getenv("ROOT_CA_DIR"))
	if err != nil {
		return err
	}
	over, err := serverTLS(signer)
	if err != nil {
		return err
	}
	callers, err := authenticators()
	if err != nil {
		return err
	}
	service, err := caserver.New(signer, cmd.DefaultMaxWorkloadCertTTL, callers, nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", os.Getenv("CA_LISTEN"))
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(over)))
	service.Register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": listener.Addr().String()}); err != nil {
		return err
	}
	return server.Serve(listener)
}

// pluggedIn is istiod's CA with the key and the roots of its Secret cacerts.
func pluggedIn(dir string) (*ca.IstioCA, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	options, err := ca.NewPluggedCertIstioCAOptions(ca.SigningCAFileBundle{
		RootCertFile: in(ca.RootCertFile), CertChainFiles: []string{in(ca.CertChainFile)},
		SigningCertFile: in(ca.CACertFile), SigningKeyFile: in(ca.CAPrivateKeyFile),
	}, cmd.DefaultWorkloadCertTTL, cmd.DefaultMaxWorkloadCertTTL, 2048)
	if err != nil {
		return nil, err
	}
	return ca.NewIstioCA(options)
}

// serverTLS has the certificate that istiod's CA makes for istiod.
func serverTLS(signer *ca.IstioCA) (*tls.Config, error) {
	chain, key, err := signer.GenKeyCert(strings.Split(os.Getenv("CA_NAMES"), ","), time.Hour, false)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(signer.GetCAKeyCertBundle().GetRootCertPem()) {
		return nil, errors.New("the CA has no roots")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients, MinVersion: tls.VersionTLS12}, nil
}

// authenticators are those of an istiod, in istiod's order.
func authenticators() ([]security.Authenticator, error) {
	var tokens security.Authenticator
	var err error
	if issuer := os.Getenv("CA_JWT_ISSUER"); issuer != "" {
		rule := &securityapi.JWTRule{Issuer: issuer, JwksUri: os.Getenv("CA_JWKS_URL"), Audiences: []string{"istio-ca"}}
		tokens, err = authenticate.NewJwtAuthenticator(rule, defaults{})
	} else {
		tokens, err = reviewed()
	}
	return []security.Authenticator{&authenticate.ClientCertAuthenticator{}, tokens}, err
}

// reviewed has an API server review tokens, as an istiod in a cluster does.
func reviewed() (security.Authenticator, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("failed to read KUBECONFIG: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	id := cluster.ID(os.Getenv("CLUSTER_ID"))
	return kubeauth.NewKubeJWTAuthenticator(defaults{}, client, id, nil, nil), nil
}

// defaults is the configuration of a mesh that has none. It never changes.
type defaults struct{ mesh.Watcher }

func (defaults) Mesh() *meshapi.MeshConfig { return mesh.DefaultMeshConfig() }
