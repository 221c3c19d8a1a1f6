// Package sds serves a [secret.Source] to Envoy and other SDS clients: [Listen]
// on a unix socket of its own, or [NewService] on a gRPC server of yours. Secrets
// are resources of the engine in sdk/xds, with inline bytes; a client chooses
// between state-of-the-world and incremental streams.
//
// The protocol: https://www.envoyproxy.io/docs/envoy/v1.36.0/configuration/security/secret
package sds

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// TypeURL is the type of what is served.
const TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// Resources returns secrets as resources of the type [TypeURL], for an [xds.Engine] or
// another stream server of your own. A resource is marshalled once for each version
// and shared: nobody may change it. Peek answers [xds.ErrUnknown], [xds.ErrNotReady] or
// [secret.ErrClosed] ([errors.Is]). It is safe for concurrent use.
func Resources(secrets secret.Source) xds.Source[secret.Caller] { return &source{Source: secrets} }

// source is a secret.Source as the stream engine sees it.
type source struct {
	secret.Source
	made sync.Map // of weak.Pointer[secret.Item] to *xds.Resource
}

// Peek returns the secret as a resource. It is marshalled once for each version
// and shared by all streams.
func (s *source) Peek(caller secret.Caller, name string) (*xds.Resource, error) {
	item, err := s.Source.Peek(caller, name)
	switch {
	case errors.Is(err, secret.ErrUnknown):
		return nil, xds.ErrUnknown
	case errors.Is(err, secret.ErrEnded):
		return nil, &xds.EndError{Status: statusOf(err)}
	case errors.Is(err, secret.ErrNotReady):
		return nil, xds.ErrNotReady
	case err != nil:
		return nil, err // the engine waits; others end with a source that is closed
	}
	key := weak.Make(item)
	if resource, ok := s.made.Load(key); ok {
		return resource.(*xds.Resource), nil
	}
	resource, err := resourceOf(item)
	if err != nil {
		return nil, err
	}
	// The resource goes when the last holder lets go of the item.
	if _, there := s.made.LoadOrStore(key, resource); !there {
		runtime.AddCleanup(item, func(key weak.Pointer[secret.Item]) { s.made.Delete(key) }, key)
	}
	return resource, nil
}

func resourceOf(item *secret.Item) (*xds.Resource, error) {
	body, err := anypb.New(message(item))
	if err != nil {
		return nil, err
	}
	return &xds.Resource{
		Name: item.Name, Version: item.Version, Body: body,
		Needs: item.RootFingerprint, Provides: item.RootFingerprints,
	}, nil
}

func message(item *secret.Item) *tlsv3.Secret {
	out := &tlsv3.Secret{Name: item.Name}
	if item.Kind == secret.TrustBundle {
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(item.Roots),
		}}
		return out
	}
	out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(item.Chain), PrivateKey: inline(item.Key),
	}}
	return out
}

func inline(pem []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem}}
}
