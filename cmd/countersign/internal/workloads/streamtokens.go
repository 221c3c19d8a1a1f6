package workloads

import (
	"context"
	"sync/atomic"

	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/token"
)

// streamTokens are what one provider gets for the streams of an agent of many
// identities: the stream's own token, exchanged step by step; for a stream without one,
// whose peer is known, the agent's.
type streamTokens struct {
	own   wiring.Tokens // nil: none
	steps []token.Exchanged
}

// streamTokensOf returns what becomes of the tokens that streams bring, for the entry of
// that name.
func streamTokensOf(cache *wiring.TokenCache, name string) streamTokens {
	own, steps := cache.Steps(name)
	return streamTokens{own, steps}
}

// ExchangeOf returns the hook for the tokens of streams, for the entry of that name.
func ExchangeOf(cache *wiring.TokenCache, name string) identities.Exchange {
	return streamTokensOf(cache, name).exchange()
}

// exchange returns the hook; nil if there is nothing to do, so that a token that was
// refused is not sent a second time.
func (s streamTokens) exchange() identities.Exchange {
	if s.own == nil && len(s.steps) == 0 {
		return identities.Exchange{}
	}
	return identities.Exchange{Token: s.token, Rejected: s.rejected}
}

func (s streamTokens) token(ctx context.Context, brought ca.Token) (ca.Token, error) {
	var source token.Source = token.Static{Value: brought}
	if chained := wiring.Through(source, s.steps); chained != nil {
		source = *chained
	}
	if brought == "" { // the agent vouches for the peer
		if s.own == nil {
			return "", nil
		}
		source = s.own
	}
	bearer, err := source.Token(ctx)
	return bearer.Token, err
}

// rejected drops what was sent, for every caller: the caches are the same.
func (s streamTokens) rejected(sent ca.Token) {
	if s.own != nil {
		s.own.Rejected(sent)
	} else if chained := wiring.Through(token.Static{}, s.steps); chained != nil {
		chained.Rejected(sent)
	}
}

// Followed is the hook of a running agent, which goes on with other exchanges
// when the configuration has changed.
type Followed struct {
	authority string // receives the tokens; those for another authority are not sent to it
	now       atomic.Pointer[identities.Exchange]
}

// Follow has a Identities that is yet to be made ask f.
func (f *Followed) Follow(cfg *identities.Config) {
	if cfg == nil || len(cfg.Certificate.Authorities) == 0 {
		return
	}
	f.authority = cfg.Certificate.Authorities[0]
	f.Take(f.authority, cfg.Exchange)
	cfg.Exchange = identities.Exchange{Token: f.token, Rejected: f.rejected, Timeout: cfg.Exchange.Timeout}
}

// Take goes on with the tokens of an authority whose client and rules are in force now. Who
// signs needs a restart, so that another authority's stay without effect.
func (f *Followed) Take(authority string, exchange identities.Exchange) {
	if authority == f.authority {
		f.now.Store(&exchange)
	}
}

// token exchanges the token anew if the authority was replaced meanwhile: another one must not
// get the result.
func (f *Followed) token(ctx context.Context, brought ca.Token) (ca.Token, error) {
	for {
		now := f.now.Load()
		if now.Token == nil {
			return brought, nil
		}
		if got, err := now.Token(ctx, brought); f.now.Load() == now {
			return got, err
		}
	}
}

func (f *Followed) rejected(sent ca.Token) {
	if hook := f.now.Load().Rejected; hook != nil {
		hook(sent)
	}
}
