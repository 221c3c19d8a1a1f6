package googleca

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// service is the Certificate Authority Service in memory, by TLS, with one pool. It
// holds requests to the service's documentation.
type service struct {
	privatecapb.UnimplementedCertificateAuthorityServiceServer
	pool     *catest.CA // who signs
	tls      *catest.CA // who signed the server's own certificate
	listener *bufconn.Listener
	root     string // file with the roots of tls

	mu      sync.Mutex
	seen    []seen
	planned []answer
	chains  func() [][]string // of FetchCaCerts, where it is not the pool's own
	fetched []seen
	policy  *privatecapb.CaPool_IssuancePolicy
	hidden  error                               // what GetCaPool answers
	refuse  error                               // what FetchCaCerts answers
	stall   bool                                // FetchCaCerts does not answer
	orders  map[string]*privatecapb.Certificate // by request ID
	made    map[string]*privatecapb.Certificate // by name
}

// staleToken is taken by no service.
const staleToken = ca.Token("ya29.c3RhbGUtdG9rZW4tb2YtYS10ZXN0.c2lnbmF0dXJl")

// seen is what a call came with.
type seen struct {
	order    *privatecapb.CreateCertificateRequest // nil of FetchCaCerts
	metadata metadata.MD
	left     time.Duration // until the call's deadline; 0 without one
}

// answer stands in for what the service does with an order.
type answer func(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error)

func start(t *testing.T) *service {
	t.Helper()
	s := &service{
		pool: catest.NewCA(catest.Options{Intermediates: 1}), tls: catest.NewCA(catest.Options{}), listener: bufconn.Listen(1 << 20),
		orders: map[string]*privatecapb.Certificate{}, made: map[string]*privatecapb.Certificate{},
	}
	s.root = fileOf(t, s.tls.Bundle().PEM())
	s.serve(t, s.listener)
	return s
}

// serve has the service answer on a listener, too.
func (s *service) serve(t *testing.T, listener net.Listener) {
	t.Helper()
	pair := pairOf(t, s.tls)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	privatecapb.RegisterCertificateAuthorityServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
}

func (s *service) settings() Settings {
	return Settings{CAPool: thePool, Endpoint: "localhost:443", RootFile: setting.File(s.root), Credentials: Token}
}

// open connects the real client library to the service.
func (s *service) open(t *testing.T, settings Settings, opts ...option.ClientOption) *CA {
	t.Helper()
	c, err := open(t.Context(), settings, append(opts, option.WithGRPCDialOption(grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) })))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// next plans what the next orders are answered with.
func (s *service) next(answers ...answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = append(s.planned, answers...)
}

func (s *service) calls() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// last returns the one order that was not looked at yet.
func (s *service) last(t *testing.T) seen {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) != 1 {
		t.Fatalf("there were %d orders, not 1", len(s.seen))
	}
	call := s.seen[0]
	s.seen = nil
	return call
}

// certificates is how many were made.
func (s *service) certificates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

func callOf(ctx context.Context) seen {
	var call seen
	call.metadata, _ = metadata.FromIncomingContext(ctx)
	if end, ok := ctx.Deadline(); ok {
		call.left = time.Until(end)
	}
	return call
}

func (s *service) CreateCertificate(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
	call := callOf(ctx)
	call.order = order
	s.mu.Lock()
	s.seen = append(s.seen, call)
	var planned answer
	if len(s.planned) > 0 {
		planned, s.planned = s.planned[0], s.planned[1:]
	}
	s.mu.Unlock()
	switch {
	case planned != nil:
		return planned(ctx, order)
	case slices.Contains(call.metadata["authorization"], "Bearer "+staleToken.Reveal()):
		return nil, status.Error(codes.Unauthenticated, "Request had invalid authentication credentials.")
	}
	return s.make(ctx, order)
}

var (
	uuid        = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	certificate = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,63}$`)
)

// make makes a certificate, or finds the one that was made for that request ID.
func (s *service) make(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := order.GetParent() + "/certificates/" + order.GetCertificateId()
	switch {
	case order.GetParent() != thePool, !uuid.MatchString(order.GetRequestId()), !certificate.MatchString(order.GetCertificateId()),
		order.GetCertificate().GetLifetime().AsDuration() <= 0:
		return nil, status.Errorf(codes.InvalidArgument, "the order is %v", order)
	case s.orders[order.GetRequestId()] != nil:
		return s.orders[order.GetRequestId()], nil
	case s.made[name] != nil:
		return nil, status.Errorf(codes.AlreadyExists, "Resource '%s' already exists", name)
	}
	leaf, err := s.sign(ctx, order.GetCertificate())
	if err != nil {
		return nil, err
	}
	files := s.pool.IstioFiles()
	s.orders[order.GetRequestId()] = &privatecapb.Certificate{
		Name: name, PemCertificate: leaf, PemCertificateChain: []string{string(files["ca-cert.pem"]), string(files["root-cert.pem"])},
	}
	s.made[name] = s.orders[order.GetRequestId()]
	return s.made[name], nil
}

func (s *service) sign(ctx context.Context, cert *privatecapb.Certificate) (string, error) {
	if cert.GetSubjectMode() == privatecapb.SubjectRequestMode_REFLECTED_SPIFFE {
		name, _ := url.Parse(webID)
		return s.configured(cert, &x509.Certificate{URIs: []*url.URL{name}})
	}
	if names := cert.GetConfig().GetSubjectConfig().GetSubjectAltName(); cert.GetConfig() != nil {
		return s.configured(cert, named(names))
	}
	reply, err := s.pool.CSRSign(ctx, ca.SignRequest{CSR: []byte(cert.GetPemCsr()), TTL: cert.GetLifetime().AsDuration()})
	if err != nil {
		return "", err
	}
	certs, err := pki.ParseCertificates(reply.Chain)
	return string(pki.EncodeCertificates(certs[:1])), err
}

// named returns a template with these names.
func named(names *privatecapb.SubjectAltNames) *x509.Certificate {
	leaf := &x509.Certificate{DNSNames: names.GetDnsNames()}
	for _, name := range names.GetUris() {
		uri, _ := url.Parse(name)
		leaf.URIs = append(leaf.URIs, uri)
	}
	for _, ip := range names.GetIpAddresses() {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(ip))
	}
	return leaf
}

// configured signs the key of a config under the names of the template.
func (s *service) configured(cert *privatecapb.Certificate, leaf *x509.Certificate) (string, error) {
	block, _ := pem.Decode(cert.GetConfig().GetPublicKey().GetKey())
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return "", status.Error(codes.InvalidArgument, err.Error())
	}
	files := s.pool.IstioFiles()
	parent, err := pki.ParseCertificates(files["ca-cert.pem"])
	if err != nil {
		return "", err
	}
	signer, err := pki.ParseKey(files["ca-key.pem"])
	if err != nil {
		return "", err
	}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.NotBefore, leaf.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(cert.GetLifetime().AsDuration())
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent[0], key, signer)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}

func (s *service) GetCaPool(context.Context, *privatecapb.GetCaPoolRequest) (*privatecapb.CaPool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &privatecapb.CaPool{Name: thePool, IssuancePolicy: s.policy}, s.hidden
}

func (s *service) GetCertificate(_ context.Context, req *privatecapb.GetCertificateRequest) (*privatecapb.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made := s.made[req.GetName()]; made != nil {
		return made, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no %s", req.GetName())
}

func (s *service) FetchCaCerts(ctx context.Context, req *privatecapb.FetchCaCertsRequest) (*privatecapb.FetchCaCertsResponse, error) {
	s.mu.Lock()
	s.fetched = append(s.fetched, callOf(ctx))
	chains, refuse, stall := s.chains, s.refuse, s.stall
	s.mu.Unlock()
	if stall {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if refuse != nil {
		return nil, refuse
	}
	if req.GetCaPool() != thePool {
		return nil, status.Error(codes.NotFound, "no such pool")
	}
	if chains == nil {
		chains = func() [][]string {
			var all [][]string // a CA for each root
			for _, root := range s.pool.Bundle().Certificates() {
				all = append(all, []string{string(s.pool.IstioFiles()["ca-cert.pem"]), string(pki.EncodeCertificates([]*x509.Certificate{root}))})
			}
			return all
		}
	}
	out := &privatecapb.FetchCaCertsResponse{}
	for _, chain := range chains() {
		out.CaCerts = append(out.CaCerts, &privatecapb.FetchCaCertsResponse_CertChain{Certificates: chain})
	}
	return out, nil
}

// fetches returns what the questions for roots came with.
func (s *service) fetches() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.fetched)
}

// forgetOrders is what the service does an hour after them.
func (s *service) forgetOrders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.orders, func(string, *privatecapb.Certificate) bool { return true })
}

func (s *service) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
