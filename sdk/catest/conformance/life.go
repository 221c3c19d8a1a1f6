package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func beginsNow(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if ahead := r.leaf().NotBefore.Sub(r.now); ahead > pki.MaxClockSkew {
			return fmt.Errorf("it begins in %s", ahead.Round(time.Second))
		}
		return nil
	})
}

func endsLater(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if leaf := r.leaf(); !leaf.NotAfter.After(leaf.NotBefore) || !leaf.NotAfter.After(r.now) {
			return fmt.Errorf("it is valid from %s to %s", clock.Stamp(leaf.NotBefore), clock.Stamp(leaf.NotAfter))
		}
		return nil
	})
}

func livesAsAsked(_ context.Context, s *Session) error {
	if s.fixedLifetime() {
		return NotRun("by the kit or the metadata, the authority fixes the lifetime")
	}
	return looking(s, func(r *reply) error {
		if end := r.now.Add(r.req.TTL); r.leaf().NotAfter.After(end.Add(pki.MaxClockSkew)) {
			return fmt.Errorf("asked for %s, until %s, it ends %s; if the CA chooses the lifetime, state fixed_lifetime in the metadata",
				r.req.TTL, clock.Stamp(end), clock.Stamp(r.leaf().NotAfter))
		}
		return nil
	})
}

func endsWithItsIssuers(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		roots, err := s.rootsOf(ctx, r)
		if err != nil {
			return err
		}
		above := slices.Clone(r.chain[1:])
		last := r.chain[len(r.chain)-1]
		for _, root := range roots.Certificates() {
			if last.CheckSignatureFrom(root) == nil {
				above = append(above, root)
			}
		}
		for _, cert := range above {
			if r.leaf().NotAfter.After(cert.NotAfter) {
				return fmt.Errorf("it ends %s, and %q ends %s", clock.Stamp(r.leaf().NotAfter), cert.Subject, clock.Stamp(cert.NotAfter))
			}
		}
		return nil
	})
}

// another has one more good request signed and parses the reply.
func (s *Session) another(ctx context.Context, change func(*ca.SignRequest)) (*reply, error) {
	i, err := s.Ready()
	if err != nil {
		return nil, err
	}
	r, err := s.ask(ctx, i, change)
	if err != nil {
		return nil, err
	}
	return r, r.fault
}

func serialsDiffer(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		other, err := s.another(ctx, func(*ca.SignRequest) {})
		if err != nil {
			return err
		}
		if r.leaf().SerialNumber.Cmp(other.leaf().SerialNumber) == 0 {
			return fmt.Errorf("both are %x", r.leaf().SerialNumber)
		}
		return nil
	})
}

func lifetimeIsOptional(ctx context.Context, s *Session) error {
	r, err := s.another(ctx, func(req *ca.SignRequest) { req.TTL = 0 })
	if err != nil {
		return err
	}
	if !r.leaf().NotAfter.After(r.now) {
		return fmt.Errorf("it ends %s", clock.Stamp(r.leaf().NotAfter))
	}
	return nil
}

func eachKindOfKey(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	for _, kind := range s.Kit.Keys {
		req, key, err := s.Request(s.Kit.Identity, kind)
		if err != nil {
			return err
		}
		cert, err := i.CSRSign(ctx, req)
		if errors.Is(err, ca.ErrInvalid) {
			continue
		}
		if err == nil {
			err = hasKey(cert, key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func repeatIsServed(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		i, err := s.Ready()
		if err != nil {
			return err
		}
		cert, err := i.CSRSign(ctx, r.req)
		if err != nil {
			return fmt.Errorf("the second time it answers %w", err)
		}
		return hasKey(cert, r.key)
	})
}

func newRequestNewCertificate(ctx context.Context, s *Session) error {
	r, err := s.another(ctx, func(*ca.SignRequest) {})
	if err != nil {
		return err
	}
	return hasKey(r.cert, r.key)
}

func requestStays(ctx context.Context, s *Session) error {
	if s.Subject.Form != "value" {
		return NotRun("over the boundary it has a copy of its own")
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	before := ca.SignRequest{CSR: slices.Clone(req.CSR), DNSNames: slices.Clone(req.DNSNames), IPAddresses: slices.Clone(req.IPAddresses)}
	if _, err := i.CSRSign(ctx, req); err != nil {
		return err
	}
	if !bytes.Equal(before.CSR, req.CSR) || !slices.Equal(before.DNSNames, req.DNSNames) || !slices.Equal(before.IPAddresses, req.IPAddresses) {
		return errors.New("its CSR or its names are others now")
	}
	return nil
}

func replyStays(ctx context.Context, s *Session) error {
	if s.Subject.Form != "value" {
		return NotRun("over the boundary it has a copy of its own")
	}
	r, err := s.another(ctx, func(*ca.SignRequest) {})
	if err != nil {
		return err
	}
	before := slices.Clone(r.cert.Chain)
	if _, err := s.another(ctx, func(*ca.SignRequest) {}); err != nil {
		return err
	}
	if !bytes.Equal(before, r.cert.Chain) {
		return errors.New("the next request changed its chain")
	}
	return nil
}
