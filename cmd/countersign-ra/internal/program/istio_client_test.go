package program

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// caller is a proxy with a token.
type caller struct {
	t     *testing.T
	conn  *grpc.ClientConn
	pairs []string
}

// dial connects as a mesh does, and verifies the server by a root. It presents no certificate, or
// the given one.
func (r *replica) dial(t *testing.T, root []byte, with ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	conn, err := grpc.NewClient(r.report(t).Istio.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: caAddress, Certificates: with})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// root is that of the file provider.
func (r *replica) root(t *testing.T) []byte {
	return []byte(read(t, filepath.Join(r.dir, "ca", "ca-cert.pem")))
}

func as(t *testing.T, conn *grpc.ClientConn, token, cluster string) caller {
	c := caller{t, conn, []string{"authorization", "Bearer " + token}}
	if cluster != "" {
		c.pairs = append(c.pairs, "clusterid", cluster)
	}
	return c
}

// ask returns the names of the certificate that the caller gets.
func (c caller) ask(fields map[string]any) (string, error) {
	c.t.Helper()
	leaf, _, err := c.obtain(fields)
	if err != nil {
		return "", err
	}
	return leaf.URIs[0].String(), nil
}

// obtain returns the certificate that the caller gets, and the roots with it. Its CSR is ztunnel's
// if it asks for another, and else that of Istio's agent.
func (c caller) obtain(fields map[string]any) (leaf *x509.Certificate, roots *pki.Bundle, err error) {
	c.t.Helper()
	id, subject := webID, ofAgent
	if another, ok := fields["ImpersonatedIdentity"].(string); ok && another != "" {
		id, subject = another, pkix.Name{}
	}
	key, csr, err := csrFor(id, subject)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.send(csr, key, fields)
}

// send makes one call, and returns what passes a client's checks.
func (c caller) send(csr string, key *ecdsa.PrivateKey, fields map[string]any) (leaf *x509.Certificate, roots *pki.Bundle, err error) {
	c.t.Helper()
	if fields == nil {
		fields = map[string]any{"CertSigner": ""} // as Istio's agent has it
	}
	request := &security.IstioCertificateRequest{Csr: csr}
	if request.Metadata, err = structpb.NewStruct(fields); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(), c.pairs...), patience)
	defer cancel()
	reply, err := security.NewClient(c.conn).CreateCertificate(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	return checked(reply.GetCertChain(), key)
}

// ofAgent is the subject in a CSR of Istio's agent: an organization without a name.
var ofAgent = pkix.Name{Organization: []string{""}}

// csrFor is a mesh's CSR: one critical URI. ztunnel's has no subject.
func csrFor(id string, subject pkix.Name) (*ecdsa.PrivateKey, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(id)}})
	if err != nil {
		return nil, "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: subject, ExtraExtensions: []pkix.Extension{{Id: oidNames, Critical: true, Value: names}},
	}, key)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), err
}

// oidNames is the extension subjectAltName.
var oidNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// checked does what agents and ztunnel do with a reply, and what both could: there is one
// certificate in each element and all roots are in the last, the leaf is for the key, and it chains
// to those roots.
func checked(elements []string, key *ecdsa.PrivateKey) (leaf *x509.Certificate, roots *pki.Bundle, err error) {
	last := len(elements) - 1
	if last < 1 {
		return nil, nil, fmt.Errorf("the reply has %d elements", len(elements))
	}
	if roots, err = pki.ParseBundle([]byte(elements[last])); err != nil {
		return nil, nil, fmt.Errorf("the last element: %w", err)
	}
	var chain []*x509.Certificate
	for n, element := range elements[:last] {
		certs, err := pki.ParseCertificates([]byte(element))
		if err == nil && (len(certs) != 1 || roots.Contains(certs[0])) {
			err = fmt.Errorf("%d certificates, or a root", len(certs))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("element %d: %w", n, err)
		}
		chain = append(chain, certs[0])
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	leaf = chain[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots.Pool(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, nil, errors.New("the leaf has another key")
	}
	return leaf, roots, ofMeshAlone(leaf)
}

// ofMeshAlone returns an error unless a leaf has one SPIFFE ID, and no other name by which a peer
// could accept its holder.
func ofMeshAlone(leaf *x509.Certificate) error {
	critical := slices.ContainsFunc(leaf.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(oidNames) && e.Critical })
	others := len(leaf.DNSNames) + len(leaf.IPAddresses) + len(leaf.EmailAddresses)
	if len(leaf.URIs) != 1 || others > 0 || !critical || len(leaf.Subject.Names) > 0 || leaf.IsCA {
		return fmt.Errorf("the leaf has the URIs %v, %d other names, the subject %q, critical names: %t, is a CA: %t", leaf.URIs, others, leaf.Subject, critical, leaf.IsCA)
	}
	return nil
}

// patiently repeats a call that is Unavailable, as clients do: an API server on a busy machine may not
// answer in time.
func patiently(call func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := call(); grpcstatus.Code(err) != codes.Unavailable || time.Now().After(end) {
			return err
		}
	}
}

// gets demands a certificate for an identity.
func (c caller) gets(fields map[string]any, want string) {
	c.t.Helper()
	var got string
	err := patiently(func() (err error) {
		got, err = c.ask(fields)
		return err
	})
	if got != want || err != nil {
		c.t.Fatalf("got %q, %v; want %s", got, err, want)
	}
}

// refused demands a code.
func (c caller) refused(fields map[string]any, want codes.Code) {
	c.t.Helper()
	repeat := patiently
	if want == codes.Unavailable {
		repeat = func(call func() error) error { return call() }
	}
	var got string
	err := repeat(func() (err error) {
		got, err = c.ask(fields)
		return err
	})
	if grpcstatus.Code(err) != want {
		c.t.Errorf("got %q, %v; want %s", got, err, want)
	}
}

func impersonate(id string) map[string]any { return map[string]any{"ImpersonatedIdentity": id} }
