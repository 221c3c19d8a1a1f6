package istioca_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// client asks as sidecars and ztunnel do, and is as strict with the reply.
type client struct {
	t    *testing.T
	conn *grpc.ClientConn
	// metadata is sent with each call.
	metadata []string
}

// as is a client with a token, and with the cluster that it names.
func (m *mesh) as(conn *grpc.ClientConn, token, cluster string) *client {
	c := &client{t: m.t, conn: conn, metadata: []string{"authorization", "Bearer " + token}}
	if cluster != "" {
		c.metadata = append(c.metadata, "clusterid", cluster)
	}
	return c
}

// wish is a request for an identity.
type wish struct {
	identity string
	fields   map[string]any // of the Struct; by default those of Istio's agent
	seconds  int64
	key      crypto.Signer // a new one by default
	csr      string        // in place of a right one
}

// impersonating is what ztunnel asks for a pod of its node.
func impersonating(identity string) wish {
	return wish{identity: identity, seconds: 86_400, fields: map[string]any{"ImpersonatedIdentity": identity}}
}

// gets is a certificate that passed the client's checks.
type gets struct {
	leaf    *x509.Certificate
	roots   []*x509.Certificate
	between int
}

func (c *client) ask(w wish) (gets, error) { return c.askUntil(c.t.Context(), w) }

func (c *client) askUntil(ctx context.Context, w wish) (gets, error) {
	c.t.Helper()
	if w.key == nil {
		w.key = newKey()
	}
	if w.csr == "" {
		w.csr = csrOf(w.key, w.identity)
	}
	request := &security.IstioCertificateRequest{Csr: w.csr, ValidityDuration: w.seconds}
	if w.fields == nil {
		w.fields = map[string]any{"CertSigner": ""}
	}
	request.Metadata = must(structpb.NewStruct(w.fields))
	reply, err := security.NewClient(c.conn).CreateCertificate(c.outgoing(ctx), request)
	if err != nil {
		return gets{}, err
	}
	return check(reply.GetCertChain(), w)
}

func (c *client) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, c.metadata...)
}

// check does what agents and ztunnel do with a reply, and what both could.
func check(elements []string, w wish) (out gets, err error) {
	if len(elements) < 2 {
		return out, fmt.Errorf("the reply has %d elements", len(elements))
	}
	last := len(elements) - 1
	bundle, err := pki.ParseBundle([]byte(elements[last]))
	if err != nil {
		return out, fmt.Errorf("the last element: %w", err)
	}
	var chain []*x509.Certificate
	for _, element := range elements[:last] {
		certs, err := pki.ParseCertificates([]byte(element))
		if err != nil || len(certs) != 1 {
			return out, fmt.Errorf("an element has %d certificates: %w", len(certs), err)
		}
		chain = append(chain, certs[0])
	}
	out = gets{leaf: chain[0], roots: bundle.Certificates(), between: len(chain) - 1}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range out.roots {
		roots.AddCert(root)
	}
	for _, cert := range chain[1:] {
		if bundle.Contains(cert) {
			return out, errors.New("a root is among the intermediates")
		}
		between.AddCert(cert)
	}
	if _, err := out.leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return out, err
	}
	if len(out.leaf.URIs) != 1 || out.leaf.URIs[0].String() != w.identity {
		return out, fmt.Errorf("the certificate is for %v, not %s", out.leaf.URIs, w.identity)
	}
	if w.key != nil && !pki.SameKey(out.leaf.PublicKey, w.key.Public()) {
		return out, errors.New("the certificate has another key")
	}
	return out, nil
}

func newKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// csrOf is ztunnel's CSR: one critical URI, and no subject.
func csrOf(key crypto.Signer, identity string) string { return csrWith(key, identity, pkix.Name{}) }

// sidecarCSR is that of Istio's agent: the same, and a subject of one empty organization.
func sidecarCSR(key crypto.Signer, identity string) string {
	return csrWith(key, identity, pkix.Name{Organization: []string{""}})
}

func csrWith(key crypto.Signer, identity string, subject pkix.Name) string {
	names := must(asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(identity)}}))
	return csrFrom(key, &x509.CertificateRequest{
		Subject:         subject,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: names}},
	})
}

func csrFrom(key crypto.Signer, template *x509.CertificateRequest) string {
	der := must(x509.CreateCertificateRequest(rand.Reader, template, key))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// must returns a certificate.
func (c *client) must(w wish) gets {
	c.t.Helper()
	got, err := c.ask(w)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// refused demands a code and returns the status.
func (c *client) refused(w wish, code codes.Code) *status.Status {
	c.t.Helper()
	_, err := c.ask(w)
	if status.Code(err) != code {
		c.t.Fatalf("got %v, want %s", err, code)
	}
	return status.Convert(err)
}

// retryIn is the RetryInfo of a status, zero for none.
func retryIn(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
