package program

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/publish"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// bundleRecord is the ConfigMap with the bundle that all replicas publish.
const bundleRecord = "countersign-discovery-bundle"

const (
	// learnWithin is longer than it takes until all replicas have a new root: each asks the CA for
	// itself, and the kubelets of two nodes update a mounted file within two minutes.
	learnWithin = 5 * time.Minute
	// overlapWithin is how long a root may be held by some replicas alone, as a replica that starts
	// after the CA's root was exchanged does not have the old one.
	overlapWithin = 24 * time.Hour
)

// openBundle takes the address of the bundle endpoint. It answers after showBundle.
func (s *service) openBundle(context.Context) error {
	c := s.config
	if c.PublishBundle.Address == "" || s.dry {
		return nil
	}
	object := record.Object{Client: s.clusters.Local().Client(), Kind: record.ConfigMap, Namespace: c.Cluster.SystemNamespace, Name: bundleRecord}
	shared, err := record.Shared(record.Publishing{Object: object, TrustDomain: c.PublishBundle.TrustDomain, Settle: learnWithin, Forget: overlapWithin, Log: s.log})
	if err != nil {
		return cli.Wrong(err)
	}
	s.bundle, err = publish.Listen(c.PublishBundle.Published, federation.Publication{TrustDomain: c.PublishBundle.TrustDomain, Content: s.published, Shared: shared}, s.log)
	return asSettings(err)
}

// published is what callers of the trust domain are verified with. There are no keys of JWT-SVIDs.
func (s *service) published(context.Context) (roots, jwks []byte, err error) {
	all := s.trust.Roots(s.config.PublishBundle.TrustDomain)
	if all.Len() == 0 {
		return nil, nil, errors.New("the roots of the trust domain are not known yet")
	}
	return all.PEM(), nil, nil
}

func (s *service) showBundle() error {
	cfg, err := tlsconfig.Server(tlsconfig.Options{Source: s.source, Certificate: agent.DefaultSecret})
	if err == nil {
		s.bundle.Show(cfg)
	}
	return err
}
