package googleca

import (
	"context"
	"crypto/x509"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const createMeshCertificate = "/google.security.meshca.v1.MeshCertificateService/CreateCertificate"

// mesh is a client of a server that speaks Mesh CA's protocol.
type mesh struct {
	conn      *grpc.ClientConn
	endpoint  string
	quota     string
	authority string
	route     metadata.MD
}

func newMesh(s Settings) (*mesh, error) {
	opts, err := dialOptions(s)
	if err != nil {
		return nil, err
	}
	opts = append(opts, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	conn, err := grpc.NewClient("dns:///"+s.Endpoint, opts...)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "endpoint is %.256q: %w", s.Endpoint, err)
	}
	route := metadata.Pairs("x-goog-request-params", "location=locations/"+s.zone())
	return &mesh{conn: conn, endpoint: s.Endpoint, quota: s.QuotaProject, authority: s.CertificateAuthority, route: route}, nil
}

// sign sends one request. The server recognizes a retry by its ID and CSR.
func (m *mesh) sign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	out := meshRequest{id: req.ID, csr: req.CSR, validity: seconds(req.TTL), authority: m.authority}
	var in meshReply
	sent, _ := metadata.FromOutgoingContext(ctx) // the parent of a trace
	err := m.conn.Invoke(metadata.NewOutgoingContext(ctx, metadata.Join(sent, m.route)), createMeshCertificate, out, &in,
		grpc.ForceCodec(meshCodec{}), grpc.PerRPCCredentials(bearer{req.Token, m.quota}))
	if err != nil {
		return ca.Certificate{}, err
	}
	return m.certificateOf(in.chain)
}

// certificateOf reads PEM elements, the leaf in the first and the roots in the last.
func (m *mesh) certificateOf(elements []string) (ca.Certificate, error) {
	last := len(elements) - 1
	if last < 1 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply's cert_chain has %d elements, want at least two: the leaf first and its roots last", m.endpoint, len(elements))
	}
	roots, unusable, err := pki.UsableBundle([]byte(elements[last]))
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the last element of the reply's cert_chain has no roots: %w", m.endpoint, err)
	}
	var chain []*x509.Certificate
	for i, element := range elements[:last] {
		certs, err := pki.ParseCertificates([]byte(element))
		if err != nil {
			return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: element %d of %d of the reply's cert_chain: %w", m.endpoint, i+1, len(elements), err)
		}
		chain = append(chain, certs...)
	}
	if chain = slices.DeleteFunc(chain, roots.Contains); len(chain) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%s: the reply's cert_chain has roots and no leaf", m.endpoint)
	}
	reply := ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: roots.PEM()}
	if len(unusable) > 0 {
		reply.Roots = []byte(elements[last]) // the agent leaves them out and logs why
	}
	return reply, nil
}
