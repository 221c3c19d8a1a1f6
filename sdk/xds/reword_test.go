package xds

import (
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
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

// A client may ask for a secret again before it has refused it: Envoy lists its names anew as they grow. Its
// refusal comes too late then to be that of what it was sent last.
func TestSecretThatIsAskedForAgainIsNeverTheSameBytesTwice(t *testing.T) {
	body, err := anypb.New(&tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: "-----BEGIN CERTIFICATE-----\n"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, refusedBefore := range []bool{false, true} {
		m := &sotw{newSession([]policy{{url: thingURL, answers: &answers{}}}, thingURL, "x", fuzzLimits)}
		found := []lookup{{name: "a", resource: &Resource{Name: "a", Version: "1", Body: body}, refusedBefore: refusedBefore}}
		request := func(version, nonce string, refusal *rpcstatus.Status) {
			t.Helper()
			if _, err := m.request(&discovery.DiscoveryRequest{ResourceNames: []string{"a"}, VersionInfo: version, ResponseNonce: nonce, ErrorDetail: refusal}); err != nil {
				t.Fatal(err)
			}
		}
		sent := func() (response *discovery.DiscoveryResponse) {
			t.Helper()
			for ok := false; !ok; response, _, ok = m.respond(0, found, time.Unix(0, 0)) { // what was refused is scheduled first
				if next, due := m.due(time.Unix(0, 0)); !due || len(next.names) != 1 {
					t.Fatal("nothing is due")
				}
			}
			m.due(time.Unix(0, 0)) // it has left
			return response
		}
		request("", "", nil)
		m.changed(0, "a")
		last := sent()
		for range 200 { // of draws from 128, two in a row would be the same
			request("", "", nil)
			request("", last.GetNonce(), &rpcstatus.Status{})
			next := sent()
			if proto.Equal(last.GetResources()[0], next.GetResources()[0]) {
				t.Fatalf("the same bytes again; refused on an earlier stream: %v", refusedBefore)
			}
			last = next
		}
		request(last.GetVersionInfo(), last.GetNonce(), nil)
		request("", "", nil)
		if next := sent(); !refusedBefore && !proto.Equal(next.GetResources()[0], body) {
			t.Error("what was accepted is sent with other bytes")
		}
	}
}

// Roots of a SPIFFE bundle are within the configuration of a validator.
func TestTextIsRewordedWhereverItIs(t *testing.T) {
	const text = "-----BEGIN CERTIFICATE-----\n"
	asString := &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: text}}
	asBytes := &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}
	validator, err := anypb.New(&tlsv3.SPIFFECertValidatorConfig{TrustDomains: []*tlsv3.SPIFFECertValidatorConfig_TrustDomain{{Name: "td", TrustBundle: asBytes}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, context := range map[string]*tlsv3.CertificateValidationContext{
		"a string":          {TrustedCa: asString},
		"a SPIFFE bundle":   {CustomValidatorConfig: &core.TypedExtensionConfig{Name: "v", TypedConfig: validator}},
		"a list of revoked": {Crl: asBytes},
	} {
		body, err := anypb.New(&tlsv3.Secret{Name: "a", Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}})
		if err != nil {
			t.Fatal(err)
		}
		r := &Resource{Name: "a", Version: "1", Body: body}
		first, second := reworded(r, 1), reworded(r, 2)
		var sent tlsv3.Secret
		if err := second.Body.UnmarshalTo(&sent); err != nil || proto.Equal(first.Body, r.Body) || proto.Equal(first.Body, second.Body) {
			t.Errorf("%s is repeated: %v", name, err)
		}
		if more := len(second.Body.GetValue()) - len(first.Body.GetValue()); more != 1 {
			t.Errorf("%s grew by %d bytes, want 1", name, more)
		}
	}
}
