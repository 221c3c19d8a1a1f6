package xds

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Envoy compares a secret with the last one it was sent, loaded or not.
func TestTriedSecretIsNeverTheSameBytesTwice(t *testing.T) {
	inline := func(text string) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}
	}
	secret := &tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("-----BEGIN CERTIFICATE-----\n"), PrivateKey: inline("-----BEGIN PRIVATE KEY-----\n"),
	}}}
	body, err := anypb.New(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := &Resource{Name: "a", Version: "1", Body: body}
	seen := []*anypb.Any{proto.CloneOf(body)}
	for n := range uint8(10) {
		next := reworded(r, n+1)
		for _, before := range seen {
			if proto.Equal(before, next.Body) {
				t.Fatalf("try %d repeats an earlier one", n+1)
			}
		}
		seen = append(seen, next.Body)
	}
	if !proto.Equal(r.Body, seen[0]) {
		t.Error("the shared body was modified")
	}
	var last tlsv3.Secret
	if err := seen[3].UnmarshalTo(&last); err != nil || len(last.GetTlsCertificate().GetCertificateChain().GetInlineBytes())+len(last.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) != 28+28+3 {
		t.Errorf("more than one empty line for each try was added: %v", err)
	}
}
