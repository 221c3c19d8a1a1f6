package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

const (
	// maxSecret limits one secret, in bytes: Kubernetes allows 1 MiB for all its keys.
	maxSecret = 1<<20 + 64<<10
	// maxVersion limits a version string of the service, which is stored as well.
	maxVersion = 1024
	// maxKey limits a private key in PEM; RSA with 16,384 bits takes about 13 KB.
	// Parsing a key of a megabyte takes minutes.
	maxKey = 16 << 10
)

// taken lists the fields a secret may have, by message. All others are rejected,
// including unknown ones, which a later Envoy may know; some make Envoy read files
// (filename, watched_directory) or its environment, or run a key provider.
var taken = map[protoreflect.FullName][]protoreflect.Name{
	(*tlsv3.Secret)(nil).ProtoReflect().Descriptor().FullName():                       {"name", "tls_certificate", "validation_context"},
	(*tlsv3.TlsCertificate)(nil).ProtoReflect().Descriptor().FullName():               {"certificate_chain", "private_key", "ocsp_staple"},
	(*tlsv3.CertificateValidationContext)(nil).ProtoReflect().Descriptor().FullName(): {"trusted_ca", "crl"},
	(*corev3.DataSource)(nil).ProtoReflect().Descriptor().FullName():                  {"inline_bytes", "inline_string"},
}

// checked is a secret that passed all checks.
type checked struct {
	resource *xds.Resource
	notAfter time.Time // of the leaf, or of the root that expires last
}

// check returns what the service sent as a resource that is safe to pass to Envoy. It
// ignores validity times: the operator must replace an expired certificate, and an
// Envoy that has it still serves clients that do not mind. No error quotes a key.
func check(sent *discoveryv3.Resource) (checked, error) {
	if size := len(sent.GetResource().GetValue()); size > maxSecret {
		return checked{}, fmt.Errorf("it has %d bytes, %d are allowed", size, maxSecret)
	}
	if size := len(sent.GetVersion()); size > maxVersion {
		return checked{}, fmt.Errorf("its version has %d bytes, %d are allowed", size, maxVersion)
	}
	var s tlsv3.Secret
	if err := sent.GetResource().UnmarshalTo(&s); err != nil {
		return checked{}, errors.New("not a Secret of Envoy's version 3")
	}
	if s.GetName() != sent.GetName() {
		return checked{}, fmt.Errorf("its name within is %.256q", s.GetName())
	}
	if err := onlyTaken(s.ProtoReflect()); err != nil {
		return checked{}, err
	}
	notAfter, err := contents(&s)
	if err != nil {
		return checked{}, err
	}
	return pack(&s, notAfter)
}

// onlyTaken walks all fields that are set.
func onlyTaken(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return fmt.Errorf("its %s has a field that this agent does not know", m.Descriptor().Name())
	}
	allowed := taken[m.Descriptor().FullName()]
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case !slices.Contains(allowed, f.Name()):
			err = fmt.Errorf("its %s has %s; of %s this agent takes %s alone", m.Descriptor().Name(), f.Name(), m.Descriptor().Name(), words(allowed))
		case f.Message() != nil:
			err = onlyTaken(v.Message())
		}
		return err == nil
	})
	return err
}

func words(names []protoreflect.Name) string {
	text := make([]string, len(names))
	for i, name := range names {
		text[i] = string(name)
	}
	return strings.Join(text, ", ")
}

// contents checks what the kind of secret requires, and that a CA name has no key.
func contents(s *tlsv3.Secret) (notAfter time.Time, err error) {
	switch of := s.GetType().(type) {
	case *tlsv3.Secret_TlsCertificate:
		if strings.HasSuffix(s.GetName(), caSuffix) {
			return notAfter, errors.New("it is a key pair, and the name is that of a CA")
		}
		return pair(of.TlsCertificate)
	case *tlsv3.Secret_ValidationContext:
		return roots(of.ValidationContext)
	}
	return notAfter, errors.New("it is neither a key pair nor a CA")
}

func pair(c *tlsv3.TlsCertificate) (notAfter time.Time, err error) {
	chain, err := pki.ParseCertificates(inline(c.GetCertificateChain()))
	if err != nil {
		return notAfter, fmt.Errorf("its certificate_chain: %w", err)
	}
	key := inline(c.GetPrivateKey())
	if len(key) > maxKey {
		return notAfter, fmt.Errorf("its private_key has %d bytes, %d are allowed", len(key), maxKey)
	}
	if _, err := tls.X509KeyPair(inline(c.GetCertificateChain()), key); err != nil {
		return notAfter, errors.New("its private_key is malformed, or not that of its certificate")
	}
	return chain[0].NotAfter, nil
}

func roots(c *tlsv3.CertificateValidationContext) (notAfter time.Time, err error) {
	certs, err := pki.ParseCertificates(inline(c.GetTrustedCa()))
	if err != nil {
		return notAfter, fmt.Errorf("its trusted_ca: %w", err)
	}
	for _, cert := range certs {
		if cert.NotAfter.After(notAfter) {
			notAfter = cert.NotAfter
		}
	}
	return notAfter, nil
}

func inline(s *corev3.DataSource) []byte {
	if text := s.GetInlineString(); text != "" {
		return []byte(text)
	}
	return s.GetInlineBytes()
}

// pack rebuilds the resource, so that Envoy parses exactly what was checked. A service that looks
// for a secret that is refused sends the others again with more empty lines: they stay as they are.
func pack(s *tlsv3.Secret, notAfter time.Time) (checked, error) {
	trim(s.GetTlsCertificate().GetCertificateChain())
	trim(s.GetTlsCertificate().GetPrivateKey())
	trim(s.GetValidationContext().GetTrustedCa())
	trim(s.GetValidationContext().GetCrl())
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, s, proto.MarshalOptions{Deterministic: true}); err != nil {
		return checked{}, err
	}
	return checked{&xds.Resource{Name: s.GetName(), Version: version.Of(body.GetValue()), Body: body}, notAfter}, nil
}

// trim leaves one newline at the end of a text, and an empty one as it is.
func trim(s *corev3.DataSource) {
	if len(inline(s)) == 0 {
		return
	}
	switch of := s.GetSpecifier().(type) {
	case *corev3.DataSource_InlineBytes:
		of.InlineBytes = append(bytes.TrimRight(of.InlineBytes, "\n"), '\n')
	case *corev3.DataSource_InlineString:
		of.InlineString = strings.TrimRight(of.InlineString, "\n") + "\n"
	}
}
