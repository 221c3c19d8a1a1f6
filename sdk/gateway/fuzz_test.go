package gateway

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Whatever a service sends: no panic, and what is taken names no file and is taken again.
func FuzzSecret(f *testing.F) {
	const name = "kubernetes://web"
	for _, source := range []*corev3.DataSource{
		{Specifier: &corev3.DataSource_InlineString{InlineString: "-----BEGIN CERTIFICATE-----"}},
		{Specifier: &corev3.DataSource_Filename{Filename: "/etc/shadow"}},
		{Specifier: &corev3.DataSource_InlineBytes{}, WatchedDirectory: &corev3.WatchedDirectory{Path: "/etc"}},
	} {
		for _, s := range []*tlsv3.Secret{
			{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: source, PrivateKey: source}}},
			{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: source}}},
		} {
			seed, err := proto.Marshal(s)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		sent := &discoveryv3.Resource{Name: name, Resource: &anypb.Any{TypeUrl: typeURL, Value: value}}
		got, err := check(sent)
		if err != nil {
			if strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("the error has a key: %v", err)
			}
			return
		}
		sent.Resource = got.resource.Body
		again, err := check(sent)
		if err != nil || again.resource.Version != got.resource.Version {
			t.Errorf("what was taken is refused: %v", err)
		}
	})
}

// Whatever an Envoy asks for: no name that is taken leaves its scheme.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"kubernetes://web", "kubernetes-gateway://a/b-cacert", "configmap://a/b", "file-cert:/a~/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if valid(name) && (len(name) > 600 || strings.ContainsAny(name, "\n\x00 ~%") || strings.Count(name, "/") > 3) {
			t.Errorf("%q is taken", name)
		}
	})
}
