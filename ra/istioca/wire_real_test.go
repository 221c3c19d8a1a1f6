//go:build e2e && istio && linux

package istioca_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var update = flag.Bool("update", false, "record the request of Istio's agent")

// recorder is a server that refuses each call, and passes it on.
func recorder(t *testing.T, server *certtest.Pair) (address string, calls chan recorded) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls = make(chan recorded, 100)
	handler := func(_ any, stream grpc.ServerStream) error {
		var r recorded
		if err := stream.RecvMsg(&r.Message); err != nil {
			return err
		}
		r.Metadata, _ = metadata.FromIncomingContext(stream.Context())
		calls <- r
		return status.Error(codes.PermissionDenied, "the request was recorded")
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(server.TLS())), grpc.ForceServerCodec(verbatim{}), grpc.UnknownServiceHandler(handler))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), calls
}

// ofAgent is what Istio's agent sends for its first certificate, without what the gRPC library adds.
func ofAgent(t *testing.T) recorded {
	t.Helper()
	dir, root := proctest.Folder(t), certtest.Root(t)
	address, calls := recorder(t, root.Leaf(t, time.Hour))
	for name, content := range map[string]string{"istio/root-cert.pem": string(pki.EncodeCertificates([]*x509.Certificate{root.Cert})), "tokens/istio-token": "web-token"} {
		path := filepath.Join(dir, "var", "run", "secrets", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_ISTIO"), "agent")
	cmd.Dir = dir
	cmd.Env = append(proctest.Environ(dir),
		`PROXY_CONFIG={"discoveryAddress": "`+address+`"}`, "ISTIOD_SAN=server", "CLOUD_PLATFORM=none", "ISTIO_META_CLUSTER_ID="+home, "CA_HEADER_x_tenant=blue",
		"TRUST_DOMAIN=cluster.local", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT=web",
	)
	agent := proctest.Start(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case r := <-calls:
		for _, key := range []string{":authority", "content-type", "user-agent"} {
			delete(r.Metadata, key)
		}
		return r
	case <-agent.Done():
		t.Fatal("the agent ended")
	case <-ctx.Done():
		t.Fatal("the agent sent no request")
	}
	return recorded{}
}

// The recording is what Istio's agent still sends, but for the key.
func TestRealIstioAgentSendsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	now := ofAgent(t)
	if *update {
		text, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(recording, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := readRecording(t)
	withoutCSR := func(r recorded) []byte { return bytes.ReplaceAll(r.Message, []byte(r.request(t).GetCsr()), nil) }
	if !bytes.Equal(withoutCSR(now), withoutCSR(then)) {
		t.Errorf("the agent sends %v, recorded is %v", now.request(t), then.request(t))
	}
	if !reflect.DeepEqual(now.Metadata, then.Metadata) {
		t.Errorf("the agent sends the metadata %v, recorded is %v", now.Metadata, then.Metadata)
	}
	if a, b := now.csr(t), then.csr(t); !bytes.Equal(a.RawSubject, b.RawSubject) || !reflect.DeepEqual(a.Extensions, b.Extensions) {
		t.Errorf("the CSR has the subject %x and %v, recorded is %x and %v", a.RawSubject, a.Extensions, b.RawSubject, b.Extensions)
	}
}
