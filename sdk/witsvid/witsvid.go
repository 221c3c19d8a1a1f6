// Package witsvid (experimental) gets WIT-SVIDs from an authority that signs them, and verifies those
// of others. A WIT-SVID binds a SPIFFE ID to a key and counts only together with a proof of possession
// of that key. A [Source] keeps WIT-SVIDs, each with a key of its own, and follows the authority's
// keys: [New] starts it, [Source.Follow] keeps one. [Prove] makes a proof, [Verifier] judges a WIT-SVID
// with a proof and refuses a proof that it has seen.
//
// The formats are drafts, and a later release follows them without notice: standards/WIT-SVID.md on the
// experimental branch of github.com/spiffe/spiffe, commit 01b3a1ee, over
// draft-ietf-wimse-workload-creds-02, and the Workload Proof Token of draft-ietf-wimse-wpt-02 (once part of
// draft-ietf-wimse-s2s-protocol).
package witsvid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// kind is that of WIT-SVIDs.
var kind = tokensource.Kind{
	Name: "WIT-SVID", Keys: "WIT keys", Span: "wit_svid.issue", Types: []string{"wit+jwt"}, Jitter: 0.1, Use: jws.WITUse, ParseKeys: jws.ParseWITKeys,
}

// Config describes a [Source].
type Config struct {
	// Signer signs and publishes its keys. Required.
	Signer ca.WITSigner
	// TTL is the lifetime to ask for: 30 seconds to 1 hour. Default: 5 minutes.
	TTL time.Duration
	// Token returns the credential for the next request, and TokenRejected receives one that
	// the authority rejected, before Token is called again. Default: no credential.
	Token         func(context.Context) (ca.Bearer, error)
	TokenRejected func(ca.Token)
	// Tracer has a trace for each WIT-SVID that the authority is asked for. Default: none.
	Tracer trace.Tracer
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log receives no token and no key. Default: [slog.Default].
	Log *slog.Logger
}

// Source keeps WIT-SVIDs and the authority's keys. Its methods are safe for concurrent use.
type Source struct {
	cfg    Config
	tokens *tokensource.Source
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	followed map[string]*following // by SPIFFE ID
}

// following is one SPIFFE ID that is followed.
type following struct {
	users    int
	stop     context.CancelFunc
	watchers watchers.Set[func()]
}

// New starts to follow the authority's keys. Call [Source.Close].
func New(cfg Config) (*Source, error) {
	if cfg.Signer == nil {
		return nil, errors.New("witsvid: Config.Signer is nil")
	}
	if err := tokensource.CheckTTL(cfg.TTL); err != nil {
		return nil, fmt.Errorf("witsvid: the TTL is %s: %w", cfg.TTL, err)
	}
	cfg.TTL = cmp.Or(cfg.TTL, tokensource.DefaultTTL)
	s := &Source{cfg: cfg, followed: map[string]*following{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tokens = tokensource.New(tokensource.Config{
		Kind: kind, Sign: s.sign, Watch: cfg.Signer.WatchWITKeys, Check: checkReply,
		TTL: cfg.TTL, Token: cfg.Token, TokenRejected: cfg.TokenRejected, Tracer: cfg.Tracer, Now: cfg.Now, Log: cfg.Log,
	})
	return s, nil
}

// Close ends the watch and the calls in flight and waits for them. It may be called twice.
func (s *Source) Close() error {
	s.mu.Lock() // see Follow
	s.cancel()
	s.mu.Unlock()
	err := s.tokens.Close()
	s.wg.Wait()
	return err
}

// Follow keeps a WIT-SVID of a SPIFFE ID until stop and calls notify, which must not block, after each
// change of what [Source.Held] returns. It is replaced, with a new key, when 0.4 to 0.6 of its life is
// over; after failures the authority is asked again by the waits of the agent. However many follow a
// SPIFFE ID, one request of it is in flight. After the last stop, the WIT-SVID is kept until it ends. An
// error is a [*ca.Error].
func (s *Source) Follow(id string, notify func()) (stop func(), err error) {
	if _, err := pki.ParseSPIFFEID(id); err != nil {
		return nil, ca.Errorf(ca.Invalid, "%w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followed[id]
	switch {
	case s.ctx.Err() != nil:
		return nil, ca.Errorf(ca.Unavailable, "the source of WIT-SVIDs is closed")
	case f == nil && len(s.followed) >= tokensource.MaxMaintained:
		return nil, ca.Errorf(ca.RateLimited, "WIT-SVIDs of %d SPIFFE IDs are kept, no more are allowed", len(s.followed))
	case f == nil:
		f = s.begin(id)
	}
	f.users++
	remove := f.watchers.Add(notify)
	return sync.OnceFunc(func() { remove(); s.leave(id, f) }), nil
}

// begin runs with the lock.
func (s *Source) begin(id string) *following {
	f := &following{}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(s.ctx)
	s.followed[id] = f
	s.wg.Go(func() {
		s.tokens.Maintain(ctx, tokensource.Order{ID: id}, func() {
			for _, notify := range f.watchers.All() {
				notify()
			}
		})
	})
	return f
}

func (s *Source) leave(id string, f *following) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users == 0 {
		f.stop()
		delete(s.followed, id)
	}
}

// Held returns the WIT-SVID of a SPIFFE ID that is followed, the private key that it is bound to, a JWK
// (RFC 7517), and when it ends. Without one, the error is why, a [*ca.Error]: [ca.ErrUnavailable] while
// it is asked for, [ca.ErrUnimplemented] if the authority signs no WIT-SVIDs.
func (s *Source) Held(id string) (wit ca.Token, key []byte, ends time.Time, err error) {
	got, err := s.tokens.Peek(tokensource.Order{ID: id})
	if got.Token == "" {
		return "", nil, time.Time{}, err
	}
	key, err = privateJWK(got.Key)
	return got.Token, key, got.Ends, err
}

// Retry ends all pauses after failures. Call it when the authority, its settings or the credential have
// changed.
func (s *Source) Retry() { s.tokens.Retry() }

// Keys returns the public keys, a JWK set that must not be modified: nil while they are not known,
// and an empty set if the authority signs no WIT-SVIDs.
func (s *Source) Keys() []byte { return s.tokens.Keys() }

// Missing reports whether the authority signs no WIT-SVIDs.
func (s *Source) Missing() bool { return s.tokens.Missing() }

// Watch calls notify after each change of Keys or Missing, until stop. notify must not block.
func (s *Source) Watch(notify func()) (stop func()) { return s.tokens.Watch(notify) }

// sign asks for a WIT-SVID of a new key.
func (s *Source) sign(ctx context.Context, o tokensource.Order, credential ca.Token) (got tokensource.Reply, err error) {
	if got.Key, err = pki.GenerateKey(pki.ECDSAP256); err != nil {
		return got, err
	}
	public, err := publicJWK(got.Key)
	if err != nil {
		return got, err
	}
	got.Token, err = s.cfg.Signer.SignWIT(ctx, ca.WITRequest{ID: uuid.NewString(), SubjectID: o.ID, PublicKey: public, TTL: s.cfg.TTL, Token: credential})
	return got, err
}
