package gateway_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func file(name string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
}

// spoiled are secrets that would be bad for Envoy, by the error they cause.
func spoiled(w *world) map[string]*tlsv3.Secret {
	pair := func(spoil func(*tlsv3.TlsCertificate)) *tlsv3.Secret {
		s := w.pair(web)
		spoil(s.GetTlsCertificate())
		return s
	}
	roots := func(spoil func(*tlsv3.CertificateValidationContext)) *tlsv3.Secret {
		s := w.roots(web)
		spoil(s.GetValidationContext())
		return s
	}
	unknown := w.pair(web)
	unknown.GetTlsCertificate().ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x01, 'x'})
	return map[string]*tlsv3.Secret{
		"has filename": pair(func(c *tlsv3.TlsCertificate) { c.PrivateKey = file("/etc/shadow") }),
		"DataSource has environment": pair(func(c *tlsv3.TlsCertificate) {
			c.PrivateKey.Specifier = &corev3.DataSource_EnvironmentVariable{EnvironmentVariable: "HOME"}
		}),
		"TlsCertificate has watched": pair(func(c *tlsv3.TlsCertificate) { c.WatchedDirectory = &corev3.WatchedDirectory{Path: "/etc"} }),
		"DataSource has watched": pair(func(c *tlsv3.TlsCertificate) {
			c.CertificateChain.WatchedDirectory = &corev3.WatchedDirectory{Path: "/etc"}
		}),
		"has private_key_provider":        pair(func(c *tlsv3.TlsCertificate) { c.PrivateKeyProvider = &tlsv3.PrivateKeyProvider{ProviderName: "x"} }),
		"has password":                    pair(func(c *tlsv3.TlsCertificate) { c.Password = inline([]byte("x")) }),
		"has pkcs12":                      pair(func(c *tlsv3.TlsCertificate) { c.Pkcs12 = file("/etc/shadow") }),
		"its certificate_chain":           pair(func(c *tlsv3.TlsCertificate) { c.CertificateChain = nil }),
		"its private_key has 16385 bytes": pair(func(c *tlsv3.TlsCertificate) { c.PrivateKey = inline(bytes.Repeat([]byte("x"), 16<<10+1)) }),
		"malformed, or not that of its ":  pair(func(c *tlsv3.TlsCertificate) { c.PrivateKey = inline(bytes.Repeat([]byte("x"), 16<<10)) }),
		"its private_key is malformed":    pair(func(c *tlsv3.TlsCertificate) { c.PrivateKey = inline([]byte("rubbish")) }),
		"or not that of its certificate":  pair(func(c *tlsv3.TlsCertificate) { c.PrivateKey = w.pair(web).GetTlsCertificate().GetPrivateKey() }),
		"a field that this agent does":    unknown,
		"its trusted_ca":                  roots(func(c *tlsv3.CertificateValidationContext) { c.TrustedCa = nil }),
		"has custom_validator_config": roots(func(c *tlsv3.CertificateValidationContext) {
			c.CustomValidatorConfig = &corev3.TypedExtensionConfig{Name: "spiffe"}
		}),
		"has system_root_certs": roots(func(c *tlsv3.CertificateValidationContext) {
			c.SystemRootCerts = &tlsv3.CertificateValidationContext_SystemRootCerts{}
		}),
		"has trust_chain_verification":    roots(func(c *tlsv3.CertificateValidationContext) { c.TrustChainVerification = 1 }),
		"its name within is":              w.pair("kubernetes-gateway://shop/other"),
		"Secret has generic_secret":       {Name: web, Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: file("/etc/shadow")}}},
		"Secret has session_ticket_keys":  {Name: web, Type: &tlsv3.Secret_SessionTicketKeys{SessionTicketKeys: &tlsv3.TlsSessionTicketKeys{}}},
		"it is neither a key pair nor a":  {Name: web},
		"bytes, 1114112 are allowed":      pair(func(c *tlsv3.TlsCertificate) { c.OcspStaple = inline(bytes.Repeat([]byte("x"), 2<<20-4096)) }),
		"of DataSource this agent takes ": roots(func(c *tlsv3.CertificateValidationContext) { c.Crl = file("/etc/shadow") }),
	}
}

func TestBadSecretIsRefusedAndOldOneKept(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		for want, bad := range spoiled(w) {
			w.told(xds.Nacked)
			w.put(web, bad)
			w.holds(web, good)
			if n, reason := w.told(xds.Nacked); n != 1 || !strings.Contains(reason, want) || !strings.Contains(reason, web) {
				t.Errorf("refused %d times with %q, want %q", n, reason, want)
			}
			if names := w.client.Status().Names; !strings.Contains(names[0].Refused, want) {
				t.Errorf("status has %q, want %q", names[0].Refused, want)
			}
		}
		if w.count(gateway.Refused) == 0 {
			t.Error("no notice was sent")
		}
		better := w.pair(web)
		w.put(web, better)
		w.holds(web, better)
		if refused := w.client.Status().Names[0].Refused; refused != "" {
			t.Errorf("still refused: %q", refused)
		}
	})
}

func TestCANameNeverHasAKey(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		name := web + "-cacert"
		w.put(name, w.pair(name))
		w.watch(name)
		w.answers(name, xds.ErrNotReady)
		if n, reason := w.told(xds.Nacked); n != 1 || !strings.Contains(reason, "the name is that of a CA") {
			t.Errorf("refused %d times with %q", n, reason)
		}
	})
}

func TestBadSecretAffectsNoOther(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		other := "kubernetes://api"
		good, bad := w.pair(web), w.pair(other)
		bad.GetTlsCertificate().PrivateKey = file("/etc/shadow")
		w.stop()
		w.watch(web)
		w.watch(other) // both are in the first answer
		w.put(web, good)
		w.put(other, bad)
		w.start()
		w.pass()
		w.holds(web, good)
		w.answers(other, xds.ErrNotReady)
	})
}

func TestResourceOfOtherTypeIsRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		body, err := anypb.New(wrapperspb.String("secret"))
		if err != nil {
			t.Fatal(err)
		}
		w.change(func() { w.items[web] = &discoveryv3.Resource{Version: "1", Resource: body} })
		w.watch(web)
		w.answers(web, xds.ErrNotReady)
		if n, _ := w.told(xds.Nacked); n != 1 {
			t.Errorf("refused %d times", n)
		}
	})
}

func TestExcessBytesAreRefused(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.MaxBytes = 1500 }, func(w *world) {
		other := "kubernetes://api"
		good := w.pair(web)
		w.put(web, good)
		w.put(other, w.pair(other))
		w.watch(web)
		w.watch(other)
		w.holds(web, good)
		w.answers(other, xds.ErrNotReady)
		better := w.pair(web)
		w.put(web, better) // in the place of the first
		w.holds(web, better)
		w.change(func() { delete(w.items, web) })
		synctest.Wait()
		next := w.pair(other)
		w.put(other, next) // now there is room
		w.holds(other, next)
	})
}

func TestSecretOfExactlyMaximumSizeIsAccepted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		padded := func(size int) *tlsv3.Secret {
			s := w.pair(web)
			c := s.GetTlsCertificate()
			c.OcspStaple = inline(nil)
			for missing := size - proto.Size(s); missing > 0; missing = size - proto.Size(s) {
				c.OcspStaple = inline(make([]byte, len(c.GetOcspStaple().GetInlineBytes())+missing-min(missing/2, 8)))
			}
			if proto.Size(s) != size {
				t.Fatalf("%d bytes, want %d", proto.Size(s), size)
			}
			return s
		}
		most := padded(1<<20 + 64<<10)
		w.put(web, most)
		w.watch(web)
		w.holds(web, most)
		w.put(web, padded(1<<20+64<<10+1))
		w.holds(web, most)
	})
}

func TestInlineStringSecretIsAccepted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		text := func(s *corev3.DataSource) *corev3.DataSource {
			return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: string(s.GetInlineBytes())}}
		}
		good := w.pair(web)
		c := good.GetTlsCertificate()
		c.CertificateChain, c.PrivateKey = text(c.CertificateChain), text(c.PrivateKey)
		w.put(web, good)
		w.watch(web)
		w.holds(web, good)
	})
}

func TestRootsExpireWithTheLastOfThem(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		life := func(hours time.Duration) []byte {
			chain, _ := leafOf(t, w.ca, "root", hours*time.Hour)
			return chain
		}
		name := web + "-cacert"
		w.put(name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(bytes.Join([][]byte{life(1), life(3), life(2)}, nil)),
		}}})
		last := time.Now().Add(3 * time.Hour)
		w.watch(name)
		if n := w.client.Status().Names[0]; !n.NotAfter.Equal(last) {
			t.Errorf("%+v, want %s", n, last)
		}
	})
}

// A trial of package xds sends a good secret again with more empty lines.
func TestEmptyLinesAtTheEndChangeNoSecret(t *testing.T) {
	for name, text := range map[string]func([]byte) *corev3.DataSource{
		"bytes": inline,
		"string": func(b []byte) *corev3.DataSource {
			return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: string(b)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				good := w.pair(web)
				c := good.GetTlsCertificate()
				chain := bytes.Clone(c.GetCertificateChain().GetInlineBytes())
				c.CertificateChain = text(chain)
				w.put(web, good)
				notices, stop := w.watch(web)
				defer stop()
				w.holds(web, good)
				for len(notices) > 0 {
					<-notices
				}
				for _, lines := range []string{"", "\n\n", "\n\n\n\n"} {
					tried := proto.CloneOf(good)
					tried.GetTlsCertificate().CertificateChain = text(append(bytes.Clone(bytes.TrimSpace(chain)), lines...))
					w.put(web, tried)
					w.holds(web, good)
				}
				if len(notices) > 0 {
					t.Error("Envoy is sent what it has")
				}
			})
		})
	}
}
