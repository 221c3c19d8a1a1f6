package secrets

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/xds"
)

// product is the result of building: a resource, or the error that prevented it. With both, the
// resource is that of the object's last good version.
type product struct {
	resource *xds.Resource
	lifetime
	err error
}

// make builds the resource that r requests.
func (o object) make(r request) product {
	read := o.pair
	if r.ca {
		read = o.authority
	}
	c, err := read()
	if err != nil {
		return product{err: err}
	}
	body, err := anypb.New(c.message(r.name))
	clear(c.key)
	if err != nil {
		return product{err: err}
	}
	return product{&xds.Resource{Name: r.name, Version: c.version(), Body: body}, c.lifetime, nil}
}

func (c content) message(name string) *tlsv3.Secret {
	if c.ca != nil {
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(c.ca), Crl: inline(c.crl)},
		}}
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(c.chain), PrivateKey: inline(c.key), OcspStaple: inline(c.staple),
	}}}
}

func inline(content []byte) *corev3.DataSource {
	if len(content) == 0 {
		return nil
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: content}}
}

// version is derived from the public part: it reaches logs and pages, and the
// certificate already determines the key.
func (c content) version() string {
	sum := sha256.New()
	for _, part := range [][]byte{c.chain, c.staple, c.ca, c.crl} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		sum.Write(size[:])
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
