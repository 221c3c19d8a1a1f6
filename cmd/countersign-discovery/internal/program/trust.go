package program

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/followed"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// trust holds the roots of each trust domain from their configured source.
type trust struct {
	held      map[string]func() *pki.Bundle // by trust domain
	endpoints *federation.Source
	changed   func(trustDomain string)
	stops     []func()
}

// rootsIn is the secret name of a trust domain's roots that come from a file.
func rootsIn(trustDomain string) string { return "roots of " + trustDomain }

// fileSpecs lists the secrets that the service reads from files.
func fileSpecs(c config.Config) (specs []filesecret.Spec) {
	if c.Signed() == nil {
		specs = append(specs, filesecret.Spec{Name: agent.DefaultSecret, Chain: c.Certificate.ChainFile, Key: c.Certificate.KeyFile})
	}
	for _, d := range c.TrustDomains {
		if d.RootsFile != "" {
			specs = append(specs, filesecret.Spec{Name: rootsIn(d.Name), Roots: d.RootsFile})
		}
	}
	return specs
}

// newTrust takes roots from files and the server's own CA from source. It calls changed
// with each trust domain whose roots change.
func newTrust(c config.Config, source secret.Source, changed func(string), log *slog.Logger) (*trust, error) {
	t := &trust{held: map[string]func() *pki.Bundle{}, changed: changed}
	var endpoints []federation.Endpoint
	for _, d := range c.TrustDomains {
		var err error
		switch {
		case d.OwnCA:
			err = t.hold(d.Name, source, agent.RootCA)
		case d.RootsFile != "":
			err = t.hold(d.Name, source, rootsIn(d.Name))
		default:
			var e federation.Endpoint
			e, err = endpointOf(d)
			endpoints = append(endpoints, e)
		}
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("trust_domains.%s: %w", d.Name, err)
		}
	}
	var err error
	t.endpoints, err = federation.New(endpoints, federation.Options{Roots: t.heldRoots, Changed: changed, Log: log})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("trust_domains: %w", err)
	}
	return t, nil
}

func (t *trust) hold(trustDomain string, source secret.Source, name string) error {
	stop, err := source.Watch(secret.Caller{}, name, func(string) { t.changed(trustDomain) })
	if err != nil {
		return err
	}
	t.held[trustDomain], t.stops = secret.Anchor(source, name), append(t.stops, stop)
	return nil
}

func endpointOf(d config.TrustDomain) (federation.Endpoint, error) {
	b := d.Bundle
	e, err := followed.Endpoint(agent.Followed{TrustDomain: d.Name, URL: b.URL, ServerID: b.ServerID, RootFile: b.RootFile, InitialFile: b.InitialFile})
	if err != nil {
		return e, fmt.Errorf("bundle.%w", err)
	}
	return e, nil
}

// Roots returns the current roots of a trust domain, nil if there are none.
func (t *trust) Roots(trustDomain string) *pki.Bundle { return t.endpoints.Bundle(trustDomain) }

func (t *trust) heldRoots(trustDomain string) *pki.Bundle {
	if roots := t.held[trustDomain]; roots != nil {
		return roots()
	}
	return nil
}

// Run fetches from endpoints until ctx ends.
func (t *trust) Run(ctx context.Context) { t.endpoints.Run(ctx) }

// Close stops the calls to changed.
func (t *trust) Close() {
	for _, stop := range t.stops {
		stop()
	}
}

// status returns the state of each trust domain's roots.
func (t *trust) status(domains []config.TrustDomain) (all []status.TrustDomain) {
	fetched := t.endpoints.Status()
	for _, d := range domains {
		out := status.TrustDomain{Name: d.Name, From: "the server's own CA", Roots: t.Roots(d.Name).Len()}
		if d.RootsFile != "" {
			out.From = d.RootsFile
		}
		if e, ok := endpoint(fetched, d.Name); ok {
			out.From, out.Fetched, out.Problem = e.URL, e.Fetched, e.Problem
		}
		if out.Roots == 0 && out.Problem == "" {
			out.Problem = "it has no roots: no caller of it can be authenticated"
		}
		all = append(all, out)
	}
	return all
}
