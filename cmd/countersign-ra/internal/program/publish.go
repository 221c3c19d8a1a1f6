package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/publish"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// readWithin is longer than two replicas can differ in what they read of the record of an authority.
const readWithin = 10 * time.Second

// bundleRecord is the ConfigMap with the bundle that all replicas publish. Records of authorities have
// another one, as an authority may have any name.
const bundleRecord = "countersign-ra-bundle"

// bundle publishes the roots that the common record of an authority has: the same on all replicas.
type bundle struct {
	of       *service
	endpoint *publish.Endpoint
	files    *filesecret.Source // nil: the certificate is Istio's
	roots    record.Recent[*pki.Bundle]
}

// openBundle takes the address of the bundle endpoint. It answers once run calls show.
func (s *service) openBundle() (err error) {
	c := s.config.PublishBundle
	if c.Address == "" {
		return nil
	}
	s.bundle = &bundle{of: s}
	if c.InFiles() {
		spec := filesecret.Spec{Name: agent.DefaultSecret, Chain: c.ChainFile, Key: c.KeyFile}
		if s.bundle.files, err = filesecret.New(filesecret.Config{Secrets: []filesecret.Spec{spec}, Log: s.log}); err != nil {
			return fmt.Errorf("publish_bundle: %w", err)
		}
	}
	if s.dry {
		return nil
	}
	object := s.recorded()
	object.Name = bundleRecord
	shared, err := record.Shared(record.Publishing{Object: object, TrustDomain: c.TrustDomain, Settle: readWithin, Forget: readWithin, Log: s.log})
	if err != nil {
		return err
	}
	s.bundle.endpoint, err = publish.Listen(c.Published, federation.Publication{TrustDomain: c.TrustDomain, Content: s.bundle.content, Shared: shared}, s.log)
	return err
}

// recorded is the ConfigMap with what is recorded about authorities.
func (s *service) recorded() record.Object {
	return record.Object{Client: s.clusters.Local().Client(), Kind: record.ConfigMap, Namespace: s.config.Cluster.SystemNamespace, Name: config.Lease}
}

func (b *bundle) show() error {
	if b == nil {
		return nil
	}
	source := secret.Source(b.files)
	if b.files == nil {
		source = b.of.door.certificate
	}
	cfg, err := tlsconfig.Server(tlsconfig.Options{Source: source, Certificate: agent.DefaultSecret})
	if err == nil {
		b.endpoint.Show(cfg)
	}
	return err
}

// content is what is published: what proxies of a mesh have, too. There are no keys of JWT-SVIDs.
func (b *bundle) content(ctx context.Context) (roots, jwks []byte, err error) {
	authority := b.of.config.PublishBundle.Authority
	all, err := b.roots.Get(ctx, b.of.log, func(ctx context.Context) (*pki.Bundle, error) {
		text, err := b.of.common.Load(ctx, authority)
		if err != nil {
			return nil, err
		}
		return ra.RecordedRoots(text)
	})
	if err != nil {
		return nil, nil, err
	}
	if all.Len() == 0 {
		return nil, nil, errors.New("the roots of the authority are not known yet")
	}
	if m := b.of.config.Mesh; m.Publishes(authority) {
		all = all.Union(m.Further())
	}
	return all.PEM(), nil, nil
}

func (b *bundle) close() error {
	if b == nil {
		return nil
	}
	errs := []error{b.endpoint.Close()}
	if b.files != nil {
		errs = append(errs, b.files.Close())
	}
	return errors.Join(errs...)
}
