package federation

import (
	"context"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Authority is the endpoint of one trust domain as an authority of a secret.Manager, which
// serves its roots, asks again after a failure and reports it. It replaces [Source.Run]
// and is safe for concurrent use.
type Authority struct {
	source *Source
	domain *domain
}

var _ ca.RootWatcher = (*Authority)(nil)

// Authority returns that of a trust domain, always the same, or nil if it has no endpoint here.
func (s *Source) Authority(trustDomain string) *Authority {
	if d := s.domains[trustDomain]; d != nil {
		return d.authority
	}
	return nil
}

// CSRSign implements [ca.Client]. A bundle endpoint signs nothing.
func (a *Authority) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{}, ca.Errorf(ca.Unimplemented, "a bundle endpoint signs nothing")
}

// WatchRoots implements [ca.RootWatcher]. It asks at once and then at the refresh interval,
// and returns at the first failure: the caller decides when to ask again.
//
// A trust domain that revokes all of its roots is an error of the set, not of the watch. One
// that never had any, as it has JWT-SVIDs alone, is no error, unless it has failed before: the
// caller would go on reporting that.
func (a *Authority) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	if initial := a.initial(); initial.Len() > 0 {
		if err := changed(initial.PEM()); err != nil {
			return err
		}
	}
	for {
		got, err := a.domain.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			a.domain.fail(err)
			return ca.Errorf(ca.Unavailable, "%w", err)
		}
		due := a.due()
		a.source.keep(a.domain, got)
		if due || got.roots.Len() > 0 {
			if err := changed(got.roots.PEM()); err != nil {
				return err
			}
		}
		if rotation.Sleep(ctx, spread(got.refresh), a.source.wall, nil); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// initial returns the roots to begin with, none if the caller has later ones: from an earlier run, or from
// before the last failure.
func (a *Authority) initial() *pki.Bundle {
	if a.domain.answered() || a.source.kept(a.domain.TrustDomain).Len() > 0 {
		return nil
	}
	return a.domain.Initial
}

// due reports whether an empty answer is news to the caller, who may have roots of an earlier run.
func (a *Authority) due() bool {
	a.domain.mu.Lock()
	failed := a.domain.status.Problem != ""
	a.domain.mu.Unlock()
	return failed || a.source.verifiers(a.domain.TrustDomain).Len() > 0
}

// answered reports whether the endpoint has ever answered, or a call has failed: the caller keeps
// its last roots.
func (d *domain) answered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.status.Fetched.IsZero() || d.status.Problem != ""
}
