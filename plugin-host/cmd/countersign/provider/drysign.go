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

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/doctor"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/wiring"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// trySign returns a function that has a key signed, verifies the reply as an agent
// does, and throws both away.
func trySign(in *settings.Flags, look looked, p doctor.Patient) func(context.Context, ca.Client) (string, error) {
	return func(ctx context.Context, client ca.Client) (string, error) {
		if target, err := look.Find(p.What); err == nil && p.Entry != nil {
			// Whether this build may run is behind us; the rest of the configuration counts.
			in.DevBuilds = []string{cmp.Or(p.Entry.Provider, p.Entry.Name) + "=" + target.Path}
		}
		c, err := in.Read()
		if err != nil {
			return "", fmt.Errorf("the configuration does not say what to ask for: %w", err)
		}
		spec, by, err := firstIdentity(c, p.Entry, client)
		if err != nil {
			return "", err
		}
		key, request, err := throwaway(ctx, spec, by)
		if err != nil {
			return "", err
		}
		reply, err := client.CSRSign(ctx, request)
		if err != nil {
			return "", err
		}
		check := pki.Check{Key: key.Public(), Identity: spec.Identity, Names: by.Names, Now: time.Now(), AskedUntil: time.Now().Add(spec.TTL), AcceptLonger: by.AcceptLongerTTL}
		return signedSentence(ctx, client, check, reply)
	}
}

// throwaway makes a key, and the request to have it signed.
func throwaway(ctx context.Context, spec secret.Spec, by secret.Authority) (crypto.Signer, ca.SignRequest, error) {
	key, err := pki.GenerateKey(spec.KeyType)
	if err != nil {
		return nil, ca.SignRequest{}, err
	}
	id := spec.Identity
	r := ca.SignRequest{ID: uuid.NewString(), TTL: spec.TTL, DNSNames: id.DNSNames, IPAddresses: id.IPAddresses}
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

// firstIdentity is what the configuration has the entry's authority sign first.
func firstIdentity(c config.Config, e *pluginhost.Entry, client ca.Client) (secret.Spec, secret.Authority, error) {
	entry, ok := entryNamed(c, e)
	if !ok {
		return secret.Spec{}, secret.Authority{}, errors.New("no entry of the configuration has it, so nothing says what to ask for")
	}
	for _, s := range c.Secrets {
		if s.Kind != config.KeyPair || !slices.Contains(s.Providers, entry.Name) {
			continue
		}
		spec, err := wiring.Spec(s, c.Rotation)
		authority, authorityErr := wiring.Authority(entry, client, wiring.NewBook(slog.New(slog.DiscardHandler)))
		return spec, authority, errors.Join(err, authorityErr)
	}
	return secret.Spec{}, secret.Authority{}, fmt.Errorf("no secret of the configuration is signed by %q", entry.Name)
}

func signedSentence(ctx context.Context, client ca.Client, check pki.Check, reply ca.Certificate) (string, error) {
	roots := reply.Roots
	if source, ok := client.(ca.RootSource); ok && len(roots) == 0 {
		var err error
		if roots, err = source.Roots(ctx); err != nil {
			return "", fmt.Errorf("it was signed, but the roots to verify it with: %w", err)
		}
	}
	var err error
	if check.Roots, err = pki.ParseBundle(roots); err != nil {
		return "", fmt.Errorf("it was signed, but the roots to verify it with: %w", err)
	}
	chain, err := check.Chain(reply.Chain)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s until %s, under %s", chain.Identity, chain.Leaf.NotAfter.UTC().Format(time.RFC3339), chain.Root.Subject), nil
}
