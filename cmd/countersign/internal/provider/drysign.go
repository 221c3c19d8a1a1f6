package provider

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/doctor"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// trySign returns a function that has a throwaway key signed and verifies the reply as
// an agent does, and one that removes the token that it sent.
func trySign(in *settings.Flags, look looked, p doctor.Patient) (sign func(context.Context, ca.Client) (string, error), hide func(string) string) {
	var sent ca.Token
	sign = func(ctx context.Context, client ca.Client) (string, error) {
		if target, err := look.Find(p.What); err == nil && p.Entry != nil {
			// The pin step has already decided that this build may run.
			in.DevBuilds = []string{cmp.Or(p.Entry.Provider, p.Entry.Name) + "=" + target.Path}
		}
		c, err := in.Read()
		if err != nil {
			return "", fmt.Errorf("the configuration does not say what to request: %w", err)
		}
		spec, by, err := firstIdentity(in.Env, c, p.Entry, client)
		if err != nil {
			return "", err
		}
		key, request, err := throwaway(ctx, spec, by)
		sent = request.Token
		if err != nil {
			return "", err
		}
		reply, err := client.CSRSign(ctx, request)
		if err != nil {
			return "", err
		}
		names, longer := by.Accepts(reply.Facts)
		check := pki.Check{Key: key.Public(), Identity: spec.Identity, Names: names, Now: time.Now(), AskedUntil: time.Now().Add(spec.TTL), AcceptLonger: longer}
		return signedSentence(ctx, client, check, reply, by.PinnedRoots)
	}
	return sign, func(shown string) string { return text.WithoutTokens(shown, sent) }
}

// throwaway returns a new key and the request to have it signed.
func throwaway(ctx context.Context, spec secret.Spec, by secret.Authority) (crypto.Signer, ca.SignRequest, error) {
	key, err := pki.GenerateKey(spec.KeyType)
	if err != nil {
		return nil, ca.SignRequest{}, err
	}
	id := spec.Identity
	r := ca.SignRequest{ID: uuid.NewString(), TTL: spec.TTL, DNSNames: id.DNSNames, IPAddresses: id.IPAddresses, Requester: by.Requester}
	if id.SPIFFEID != nil {
		r.SubjectID = id.SPIFFEID.String()
	}
	if r.CSR, err = pki.CreateCSR(key, id); err != nil {
		return nil, r, err
	}
	if by.Token != nil {
		bearer, err := by.Token(ctx)
		r.Token = bearer.Token
		return key, r, err
	}
	return key, r, nil
}

// firstIdentity returns the first key pair of the configuration that the entry signs.
func firstIdentity(env environ.Vars, c config.Config, e *pluginhost.Entry, client ca.Client) (secret.Spec, secret.Authority, error) {
	i := slices.IndexFunc(c.Providers, func(p config.Provider) bool { return e != nil && p.Name == e.Name })
	if i < 0 {
		return secret.Spec{}, secret.Authority{}, errors.New("the configuration has no entry for this provider, so there is nothing to request")
	}
	entry := c.Providers[i]
	for _, s := range c.Named() {
		if s.Kind != config.KeyPair || !slices.Contains(s.Providers, entry.Name) {
			continue
		}
		spec, err := wiring.Spec(s, c.Rotation)
		authority, authorityErr := wiring.Authority(entry, client, wiring.NewTokenCache(env, slog.New(slog.DiscardHandler)))
		return spec, authority, errors.Join(err, authorityErr)
	}
	return secret.Spec{}, secret.Authority{}, fmt.Errorf("the configuration has no secret that %q signs", entry.Name)
}

func signedSentence(ctx context.Context, client ca.Client, check pki.Check, reply ca.Certificate, pins *pki.Bundle) (string, error) {
	roots := reply.Roots
	if source, ok := client.(ca.RootSource); ok && len(roots) == 0 {
		var err error
		if roots, err = source.Roots(ctx); err != nil {
			return "", fmt.Errorf("signed, but cannot get the roots to verify it with: %w", err)
		}
	}
	var err error
	if check.Roots, _, err = pki.UsableBundle(roots); err != nil {
		return "", fmt.Errorf("signed, but cannot get the roots to verify it with: %w", err)
	}
	if pins != nil {
		if all := check.Roots; all.Filter(pins.Contains).Len() == 0 {
			return "", pki.NotPinned(all)
		}
		check.Roots = check.Roots.Filter(pins.Contains)
	}
	chain, err := check.Chain(reply.Chain)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s until %s, under %s", text.Clean(chain.Identity.String()), clock.Stamp(chain.Leaf.NotAfter), text.Clean(chain.Root.Subject.String())), nil
}
