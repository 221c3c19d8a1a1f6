package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/publish"
	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// publishedBundle is the agent's bundle endpoint; nil if there is none.
type publishedBundle struct {
	endpoint *publish.Endpoint
	secret   string // of the server
	source   secret.Source
	witKeys  bool
	jwts     jwtSVIDs
	wits     witSVIDs
}

// listenBundle takes the address. Handshakes succeed once show was called.
func listenBundle(c config.Config, storage secret.Storage, log *slog.Logger) (p *publishedBundle, err error) {
	b := c.PublishBundle
	if b.Address == "" {
		return nil, nil
	}
	p = &publishedBundle{secret: b.Secret, witKeys: c.PublishesWIT()}
	out := federation.Publication{TrustDomain: c.TrustDomain, Content: p.content}
	if storage != nil {
		out.Numbered = newBundleNumber(storage, c.TrustDomain, log)
	}
	p.endpoint, err = publish.Listen(b.Published, out, log)
	return p, err
}

// show publishes the roots of a source, and the keys of tokens if there are any.
func (p *publishedBundle) show(source secret.Source, jwts jwtSVIDs, wits witSVIDs) {
	if p == nil {
		return
	}
	p.source, p.jwts, p.wits = source, jwts, wits
	cfg, err := tlsconfig.Server(tlsconfig.Options{Source: source, Certificate: p.secret})
	if err != nil {
		panic(err) // never with a source and a name
	}
	p.endpoint.Show(cfg)
}

// content is what is published. The keys of tokens are not left out while they are not known: clients
// would refuse the tokens.
func (p *publishedBundle) content(context.Context) (roots, jwks []byte, err error) {
	if p.jwts.Source != nil {
		if jwks = p.jwts.Keys(); jwks == nil {
			return nil, nil, errors.New("the keys of JWT-SVIDs are not known yet")
		}
	}
	if p.witKeys {
		wits := p.wits.Keys()
		if wits == nil {
			return nil, nil, errors.New("the keys of WIT-SVIDs are not known yet")
		}
		if jwks, err = together(jwks, wits); err != nil {
			return nil, nil, err
		}
	}
	item, err := p.source.Peek(secret.Caller{}, config.RootCA)
	if err != nil {
		return nil, nil, err
	}
	return item.Roots, jwks, nil
}

// together returns the keys of JWK sets as one set. A nil set has none.
func together(sets ...[]byte) ([]byte, error) {
	type keySet struct {
		Keys []json.RawMessage `json:"keys"`
	}
	var all keySet
	for _, set := range sets {
		var one keySet
		if err := json.Unmarshal(set, &one); set != nil && err != nil {
			return nil, err
		}
		all.Keys = append(all.Keys, one.Keys...)
	}
	return json.Marshal(all)
}

func (p *publishedBundle) close() error {
	if p == nil {
		return nil
	}
	return p.endpoint.Close()
}

// bundleNumber keeps the number of the published bundle in the agent's state.
type bundleNumber struct {
	storage secret.Storage
	record  string
	turn    call.Turn // a storage may hang, and requests wait for it
	log     *slog.Logger
}

func newBundleNumber(storage secret.Storage, domain string, log *slog.Logger) *bundleNumber {
	return &bundleNumber{storage, "bundle number " + domain, call.NewTurn(), log}
}

const bundleNumberVersion = 1

// keptNumber is the content of the record.
type keptNumber struct {
	Version int    `json:"version"`
	Number  uint64 `json:"number"`
	Digest  string `json:"digest"`
}

// Last implements [federation.Numbered]. A record that cannot be used counts as none: the next number
// is the time then, which is later than that of the record.
func (b *bundleNumber) Last(ctx context.Context) (number uint64, digest string, err error) {
	r, err := call.Do(ctx, 0, b.turn, func(ctx context.Context) (secret.Record, error) { return b.storage.Load(ctx, b.record) })
	if err == nil && len(r.Content) == 0 {
		return 0, "", nil
	}
	var kept keptNumber
	if err == nil && (json.Unmarshal(r.Content, &kept) != nil || kept.Version != bundleNumberVersion) {
		err = errors.New("the record's content is not understood")
	}
	if err != nil {
		b.log.Warn("the number of the published bundle is not known from the last run, going on from the time", "error", text.Clean(err.Error()))
		return 0, "", nil
	}
	return kept.Number, kept.Digest, nil
}

// Store implements [federation.Numbered].
func (b *bundleNumber) Store(ctx context.Context, number uint64, digest string) error {
	content, err := json.Marshal(keptNumber{bundleNumberVersion, number, digest})
	if err == nil {
		_, err = call.Do(ctx, 0, b.turn, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, b.storage.Store(ctx, b.record, secret.Record{Authority: b.record, Content: content})
		})
	}
	if err != nil {
		b.log.Warn("the number of the published bundle could not be stored for the next run; the bundle is published all the same", "error", text.Clean(err.Error()))
	}
	return err
}
