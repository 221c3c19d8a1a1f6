// Package sds serves a [secret.Source] to Envoy and other SDS clients: the agent calls
// [Listen] for a unix socket, and an embedder [NewService] for its own gRPC server. Secrets
// are resources of the sdk/xds engine with inline bytes, over state-of-the-world or
// incremental streams, and over ADS for that type alone. Goroutines belong to streams.
//
// The protocol: https://www.envoyproxy.io/docs/envoy/v1.36.0/configuration/security/secret
package sds

import (
	"cmp"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// TypeURL is the type URL of the served resources.
const TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// Resources returns secrets as resources of type [TypeURL], for an [xds.Engine] or
// another stream server. A version of a secret is marshalled once for all callers that hold it at a time,
// so they must not modify it. Peek returns [xds.ErrUnknown], [xds.ErrNotReady] or
// [secret.ErrClosed] ([errors.Is]). The result is safe for concurrent use.
func Resources(secrets secret.Source) xds.Source[secret.Caller] {
	return &source{Source: secrets, log: slog.Default()}
}

// source adapts a secret.Source to the stream engine.
type source struct {
	secret.Source
	log  *slog.Logger
	made sync.Map // weak.Pointer[secret.Item] to made
}

// made is an item as a resource. Its body is a second copy of the certificate and the key, and kept only
// while a stream sends it.
type made struct {
	kept *xds.Resource // nil if it cannot be served
	full weak.Pointer[xds.Resource]
}

// Peek returns the secret as a resource of the requested name. Under its own name it is
// marshalled once for all streams that send it at a time.
func (s *source) Peek(caller secret.Caller, name string) (*xds.Resource, error) {
	item, err := s.Source.Peek(caller, name)
	if err != nil {
		return nil, translated(err)
	}
	if name != item.Name {
		return resourceAs(item, name)
	}
	return s.resource(item, name)
}

// Watch implements [xds.Source].
func (s *source) Watch(caller secret.Caller, name string, notify func(string)) (stop func(), err error) {
	if stop, err = s.Source.Watch(caller, name, notify); err != nil {
		err = translated(err)
	}
	return stop, err
}

// resourceAs returns an item under the name that the client requested, such as a DNS name in
// another case. A client can request any number of such names, so they are not kept.
func resourceAs(item *secret.Item, name string) (*xds.Resource, error) {
	resource, err := resourceOf(item, name)
	if errors.Is(err, secret.ErrNotExportable) {
		return nil, xds.ErrUnknown // logged under its own name
	}
	return resource, err
}

// translated returns the engine's error for one of a secret source.
func translated(err error) error {
	switch {
	case errors.Is(err, secret.ErrUnknown):
		return xds.ErrUnknown
	case errors.Is(err, secret.ErrEnded):
		return &xds.EndError{Status: statusOf(err)}
	case errors.Is(err, secret.ErrNotReady):
		return xds.ErrNotReady
	}
	return err // the engine waits; other servers end when the source is closed
}

// resource returns an item as the resource of a name, the same one while any stream sends it. A secret
// whose key cannot be exported is unknown here: a client waiting for it would wait forever.
func (s *source) resource(item *secret.Item, name string) (*xds.Resource, error) {
	at := weak.Make(item)
	found, there := s.made.Load(at)
	known, _ := found.(made)
	if there && known.kept == nil {
		return nil, xds.ErrUnknown
	}
	if full := known.full.Value(); full != nil {
		return full, nil
	}
	resource, err := resourceOf(item, name)
	switch {
	case errors.Is(err, secret.ErrNotExportable):
		s.log.Error("secret not served over SDS: its key is not exportable", "secret", name, "error", err)
		resource, err = nil, xds.ErrUnknown
	case err != nil:
		return nil, err
	default:
		known.kept = cmp.Or(known.kept, resource.Kept) // all streams share one
		resource.Kept, known.full = known.kept, weak.Make(resource)
	}
	// The entry is removed once the item is garbage collected.
	if _, there := s.made.Swap(at, known); !there {
		runtime.AddCleanup(item, func(at weak.Pointer[secret.Item]) { s.made.Delete(at) }, at)
	}
	return resource, err
}

func resourceOf(item *secret.Item, name string) (*xds.Resource, error) {
	text, err := message(item, name)
	if err != nil {
		return nil, err
	}
	body, err := anypb.New(text)
	if err != nil {
		return nil, err
	}
	kept := xds.Resource{Name: name, Version: item.Version, Needs: item.RootFingerprint, Provides: item.RootFingerprints}
	resource := kept
	resource.Body, resource.Kept = body, &kept
	return &resource, nil
}

func message(item *secret.Item, name string) (*tlsv3.Secret, error) {
	out := &tlsv3.Secret{Name: name}
	if item.Kind == secret.TrustBundle {
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: validation(item)}
		return out, nil
	}
	key, err := item.KeyPEM()
	out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(item.Chain), PrivateKey: inline(key),
	}}
	return out, err
}

// validation has no CRL unless there is a list: Envoy checks revocation once the field is set, and
// then refuses every peer.
func validation(item *secret.Item) *tlsv3.CertificateValidationContext {
	out := &tlsv3.CertificateValidationContext{TrustedCa: inline(item.Roots)}
	if len(item.CRLs) > 0 {
		out.Crl, out.OnlyVerifyLeafCertCrl = inline(item.CRLs), item.LeafCRLOnly
	}
	return out
}

func inline(pem []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem}}
}
