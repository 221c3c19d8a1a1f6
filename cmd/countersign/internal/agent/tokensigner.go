package agent

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// tokenSigner is the entry of a provider that signs tokens: its client, of type S, and its tokens. A
// reload may give it another client. nil: no provider signs such tokens.
type tokenSigner[S comparable] struct {
	provider string
	removed  S           // the client of a provider that is not configured any more, until it is again
	source   tokenSource // of the tokens that it signs

	mu       sync.Mutex
	from     *signerEntry[S]
	replaced chan struct{} // closed when from is another
}

// tokenSource is a Source of package jwtsvid or witsvid.
type tokenSource interface {
	Retry()
	Close() error
}

type signerEntry[S comparable] struct {
	client S
	tokens secret.Authority
	given  map[[sha256.Size]byte]bool // hashes of its tokens
}

// maxGiven bounds the hashes that an entry keeps: more than there are calls in flight.
const maxGiven = 1024

func newTokenSigner[S comparable](provider string, removed S, authorities []secret.Authority) *tokenSigner[S] {
	t := &tokenSigner[S]{provider: provider, removed: removed, replaced: make(chan struct{})}
	t.take(authorities)
	return t
}

// follow takes over the provider's entry after a reload.
func (t *tokenSigner[S]) follow(authorities []secret.Authority) {
	if t != nil && t.take(authorities) {
		t.source.Retry()
	}
}

// retry ends the pauses after the failures of a provider.
func (t *tokenSigner[S]) retry(provider string) {
	if t != nil && t.provider == provider {
		t.source.Retry()
	}
}

func (t *tokenSigner[S]) close() error {
	if t == nil {
		return nil
	}
	return t.source.Close()
}

// take takes over the client and the tokens of the provider's entry, and reports whether that has
// another client.
func (t *tokenSigner[S]) take(authorities []secret.Authority) (replaced bool) {
	next := &signerEntry[S]{client: t.removed}
	for _, a := range authorities {
		if client, ok := a.Client.(S); ok && a.Name == t.provider {
			next = &signerEntry[S]{client: client, tokens: a}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if replaced = t.from == nil || t.from.client != next.client; replaced {
		close(t.replaced)
		t.replaced = make(chan struct{})
		next.given = map[[sha256.Size]byte]bool{}
	} else {
		next.given = t.from.given
	}
	t.from = next
	return replaced
}

func (t *tokenSigner[S]) now() (from *signerEntry[S], replaced <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from, t.replaced
}

// client returns the client of the entry that a token is from, if that is still in force: another one
// must not get the token.
func (t *tokenSigner[S]) client(token ca.Token) (client S, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token != "" && !t.from.given[hashOf(token)] {
		return client, ca.Errorf(ca.Unavailable, "the provider was replaced while its credential was read; try again")
	}
	return t.from.client, nil
}

func hashOf(token ca.Token) [sha256.Size]byte { return sha256.Sum256([]byte(token.Reveal())) }

func (t *tokenSigner[S]) note(from *signerEntry[S], token ca.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(from.given) >= maxGiven {
		clear(from.given)
	}
	from.given[hashOf(token)] = true
}

// watch has the client watch its keys, and the next one when it is replaced.
func (t *tokenSigner[S]) watch(ctx context.Context, changed func([]byte) error, keys func(S, context.Context, func([]byte) error) error) error {
	for {
		from, replaced := t.now()
		err := until(ctx, replaced, func(ctx context.Context) error { return keys(from.client, ctx, changed) })
		select {
		case <-ctx.Done():
			return err
		case <-replaced:
		default:
			return err
		}
	}
}

// until calls f with a context that also ends when over is closed.
func until(ctx context.Context, over <-chan struct{}, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return f(ctx)
}

// token reads the token anew if its authority was replaced meanwhile: another one must not get it.
func (t *tokenSigner[S]) token(ctx context.Context) (bearer ca.Bearer, err error) {
	for {
		from, replaced := t.now()
		if from.tokens.Token == nil {
			return ca.Bearer{}, nil
		}
		bearer, err = from.tokens.Token(ctx)
		select {
		case <-replaced:
		default:
			t.note(from, bearer.Token)
			return bearer, err
		}
	}
}

func (t *tokenSigner[S]) rejected(token ca.Token) {
	if from, _ := t.now(); from.tokens.TokenRejected != nil {
		from.tokens.TokenRejected(token)
	}
}

// removed is the client of a provider that is not configured any more.
type removed struct{}

var errRemoved = ca.Errorf(ca.Unavailable, "the provider was removed from the configuration")

func (removed) SignJWT(context.Context, ca.JWTRequest) (ca.Token, error) { return "", errRemoved }

func (removed) SignWIT(context.Context, ca.WITRequest) (ca.Token, error) { return "", errRemoved }

func (removed) WatchJWTKeys(ctx context.Context, _ func([]byte) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (r removed) WatchWITKeys(ctx context.Context, changed func([]byte) error) error {
	return r.WatchJWTKeys(ctx, changed)
}
