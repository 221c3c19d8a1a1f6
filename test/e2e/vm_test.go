package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

const vmToken = "the-token-of-a-machine"

// istiod signs for who shows the token, or a certificate that it signed before.
type istiod struct {
	security.UnimplementedIstioCertificateServiceServer
	address string
	mesh    *catest.CA

	mu        sync.Mutex
	byToken   int
	bySerials []string // of the certificates that were shown
}

func startIstiod(t *testing.T) *istiod {
	t.Helper()
	i := &istiod{mesh: catest.NewCA(catest.Options{})}
	pair, err := tls.X509KeyPair(i.mesh.Pair(time.Hour, "", "istiod.istio-system.svc"))
	mustDo(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: i.mesh.Bundle().Pool(), NextProtos: []string{"h2"},
	})))
	security.Register(server, i)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	i.address = "localhost:" + port
	return i
}

// CreateCertificate signs with the root last, as istiod does.
func (i *istiod) CreateCertificate(ctx context.Context, req *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	if !i.knows(ctx) {
		return nil, status.Error(codes.Unauthenticated, "neither a token nor a certificate")
	}
	reply, err := i.mesh.CSRSign(ctx, ca.SignRequest{CSR: []byte(req.GetCsr()), TTL: time.Duration(req.GetValidityDuration()) * time.Second})
	if err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(reply.Chain), string(reply.Roots)}}, nil
}

func (i *istiod) knows(ctx context.Context) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if shown := shownBy(ctx); shown != nil {
		i.bySerials = append(i.bySerials, shown.SerialNumber.String())
		return true
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if slices.Contains(md.Get("authorization"), "Bearer "+vmToken) {
		i.byToken++
		return true
	}
	return false
}

func shownBy(ctx context.Context) *x509.Certificate {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			return info.State.PeerCertificates[0]
		}
	}
	return nil
}

// certificates returns how often the token was shown, and how many different
// certificates.
func (i *istiod) shown() (tokens, certificates int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.byToken, len(slices.Compact(slices.Sorted(slices.Values(i.bySerials))))
}

// A virtual machine starts with a token, loses it, and goes on renewing with the
// certificate that it wrote, over a restart, too.
func TestVirtualMachineRenewsWithItsOwnCertificate(t *testing.T) {
	t.Parallel()
	i, dir := startIstiod(t), proctest.Folder(t)
	certs, token, root := filepath.Join(dir, "certs"), filepath.Join(dir, "token"), filepath.Join(dir, "root.pem")
	mustDo(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
	writeWhole(t, token, []byte(vmToken))
	writeWhole(t, root, i.mesh.Bundle().PEM())
	start := func() *process {
		// PROV_CERT is OUTPUT_CERTS, as in the sidecar.env of a virtual machine.
		return startProcess(t, "/usr/bin/env",
			"CA_ADDR="+i.address, "CA_ROOT_CA="+root, "PROV_CERT="+certs, "OUTPUT_CERTS="+certs,
			"TRUST_DOMAIN="+trustDomain, "POD_NAMESPACE=e2e", "SERVICE_ACCOUNT=vm", "SECRET_TTL=60s", "SECRET_GRACE_PERIOD_RATIO=0.975",
			filepath.Join(binaries(t), "countersign"), "agent", "--dev", "--socket", filepath.Join(dir, "socket"),
			"--runtime-dir", filepath.Join(dir, "run"), "--set", "providers.citadel.token.file="+token)
	}
	machine := start()
	machine.log.await(t, "files written")
	mustDo(t, os.Remove(token))
	poll(t, "three renewals with certificates", func() bool { _, n := i.shown(); return n >= 3 })
	machine.stop(t, syscall.SIGTERM)
	_, before := i.shown()
	machine = start()
	poll(t, "two more after a restart", func() bool { _, n := i.shown(); return n >= before+2 })
	if tokens, _ := i.shown(); tokens != 1 {
		t.Errorf("the token was shown %d times", tokens)
	}
	poll(t, "a pair between two renewals", func() bool { // which replace one file after the other
		_, err := tls.LoadX509KeyPair(filepath.Join(certs, "cert-chain.pem"), filepath.Join(certs, "key.pem"))
		return err == nil
	})
	if strings.Contains(machine.log.String(), "PRIVATE KEY") {
		t.Error("a key was logged")
	}
}
