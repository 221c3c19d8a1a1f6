package istioca_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const createCertificate = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// recorded is a call of Istio's own agent, as it was on the wire. `make check NAME=istio` compares it with
// what the agent sends.
type recorded struct {
	Metadata metadata.MD `json:"metadata"`
	Message  []byte      `json:"message"`
}

const recording = "testdata/istio-agent.json"

func readRecording(t *testing.T) recorded {
	t.Helper()
	text, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// request decodes the message.
func (r recorded) request(t *testing.T) *security.IstioCertificateRequest {
	t.Helper()
	var out security.IstioCertificateRequest
	if err := proto.Unmarshal(r.Message, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// csr decodes the CSR.
func (r recorded) csr(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	block, _ := pem.Decode([]byte(r.request(t).GetCsr()))
	if block == nil {
		t.Fatal("the recording has no CSR")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// verbatim is a codec that passes a message's bytes on.
type verbatim struct{}

func (verbatim) Name() string { return "proto" }

func (verbatim) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (verbatim) Unmarshal(data []byte, v any) error {
	if raw, ok := v.(*[]byte); ok {
		*raw = bytes.Clone(data)
		return nil
	}
	return proto.Unmarshal(data, v.(proto.Message))
}

func TestRequestOfIstiosAgentIsServed(t *testing.T) {
	call := readRecording(t)
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		var reply security.IstioCertificateResponse
		ctx := metadata.NewOutgoingContext(t.Context(), call.Metadata)
		if err := conn.Invoke(ctx, createCertificate, call.Message, &reply, grpc.ForceCodec(verbatim{})); err != nil {
			t.Fatal(err)
		}
		got, err := check(reply.GetCertChain(), wish{identity: web})
		if err != nil {
			t.Fatal(err)
		}
		if !pki.SameKey(got.leaf.PublicKey, call.csr(t).PublicKey) {
			t.Error("the certificate has another key")
		}
	})
}
