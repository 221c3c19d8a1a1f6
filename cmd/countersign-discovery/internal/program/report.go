package program

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func (s *service) report() status.Report {
	r := status.Report{
		Process: s.life.Report(), At: time.Now().UTC(), Build: buildinfo.This(), Server: s.server.Status(), Secrets: s.held(), TrustDomains: s.trust.status(s.config.TrustDomains),
	}
	if s.signed != nil {
		r.Providers = s.signed.providers.Status()
	}
	if s.clusters != nil {
		r.Clusters, r.Kubernetes, r.Watched = s.clusters.Status(), s.clusters.counted(), s.clusters.watching()
		r.Unknown = s.unknownClusters()
	}
	if s.resources != nil {
		held := s.resources.Status()
		r.Folder = &held
	}
	return r
}

// unknownClusters is empty until the clusters are synced.
func (s *service) unknownClusters() []config.ClusterName {
	if s.clusters.Ready() != nil {
		return nil
	}
	return slices.DeleteFunc(s.config.ClusterNames(), func(n config.ClusterName) bool { return s.clusters.Known(n.ID) })
}

// held returns the status of the secrets that the service itself needs.
func (s *service) held() []secret.Status {
	if s.signed == nil {
		return s.files.Status()
	}
	return append(s.signed.Status(), s.files.Status()...)
}

// endpoint returns the status of a trust domain's bundle endpoint.
func endpoint(all []federation.Status, name string) (federation.Status, bool) {
	i := slices.IndexFunc(all, func(e federation.Status) bool { return e.TrustDomain == name })
	if i < 0 {
		return federation.Status{}, false
	}
	return all[i], true
}
