package federation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The profiles of an endpoint (SPIFFE Federation, section 5.2).
const (
	// Web is the profile of a server with a Web PKI certificate.
	Web = "https_web"
	// SPIFFE is the profile of a server with an X.509-SVID.
	SPIFFE = "https_spiffe"
)

// Publication configures a [Publisher].
type Publication struct {
	TrustDomain string
	// Content returns the roots of the trust domain (PEM), and the keys of its JWT-SVIDs and, with
	// "use":"wit-svid", of its WIT-SVIDs (experimental; a JWK set, nil if it has neither). SPIRE
	// 1.15 refuses a bundle with keys of WIT-SVIDs. An error means that they are not known now:
	// clients get status 503 and keep what they have. Requests wait for it, so it needs a deadline
	// of its own; it is called by one at a time. Required.
	Content func(ctx context.Context) (roots, jwks []byte, err error)
	// URL is the https URL that clients use. Its path is where the bundle is, by default /. The
	// discovery document names it; without a URL there is no such document.
	URL string
	// Profile is [Web] or [SPIFFE]; only the discovery document has it.
	Profile string
	// Numbered keeps the sequence number over restarts. Default: the first number is the time, so
	// that it grows over a restart unless the clock goes back.
	Numbered Numbered
	// Shared has several servers of one trust domain publish the same roots with one number, in place
	// of Numbered. It gets the roots of this server, nil if Content fails, and returns what all publish;
	// a new number is least, which is the time, or more. Each request for the bundle asks, one at a time
	// and with a deadline. After an error, clients get status 503. It excludes keys of tokens.
	// Default: nil.
	Shared func(ctx context.Context, own *pki.Bundle, least uint64) (roots *pki.Bundle, number uint64, err error)
	// Log receives why clients get status 503, once for each reason in a row. Default: [slog.Default].
	Log *slog.Logger
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
}

// Numbered keeps the number of the bundle that was published last. A Publisher calls one method at
// a time, with a deadline that the methods must keep, as requests wait for them.
type Numbered interface {
	// Last returns the number and the digest stored last, zero and "" if there are none. The
	// publisher asks until there is no error.
	Last(ctx context.Context) (number uint64, digest string, err error)
	// Store replaces both. After an error the bundle is published all the same.
	Store(ctx context.Context, number uint64, digest string) error
}

// Publisher is the bundle endpoint of a trust domain (SPIFFE Federation, section 4). It is safe
// for concurrent use and needs no Close.
type Publisher struct {
	Publication
	domain    spiffeid.TrustDomain
	path      string
	discovery []byte

	mu     sync.Mutex
	number uint64
	digest string // of what number stands for; "": nothing was published
	asked  bool   // Numbered has answered
	body   []byte
	logged string // why the last request failed; "": it did not
}

var _ http.Handler = (*Publisher)(nil)

// NewPublisher checks p and returns its Publisher. The caller serves it over TLS.
func NewPublisher(p Publication) (*Publisher, error) {
	if err := pki.CheckTrustDomain(p.TrustDomain); err != nil {
		return nil, err
	}
	domain, err := spiffeid.TrustDomainFromString(p.TrustDomain)
	switch {
	case err != nil:
		return nil, err
	case p.Content == nil:
		return nil, errors.New("federation: Publication.Content is required")
	case p.Profile != Web && p.Profile != SPIFFE:
		return nil, fmt.Errorf("the profile is %.64q: must be %s or %s", p.Profile, Web, SPIFFE)
	}
	if p.Now == nil {
		p.Now = clock.Wall
	}
	p.Log = cmp.Or(p.Log, slog.Default())
	out := &Publisher{Publication: p, domain: domain, path: "/"}
	return out, out.takeURL()
}

func (p *Publisher) takeURL() (err error) {
	if p.URL == "" {
		return nil
	}
	if err := endpoint.CheckBundleURL(p.URL); err != nil {
		return err
	}
	at, err := url.Parse(p.URL)
	if err == nil && at.Path != "" {
		p.path = at.Path
	}
	p.discovery, err = json.Marshal(map[string]string{
		"spiffe_trust_domain_name": p.TrustDomain, "spiffe_bundle_endpoint_uri": p.URL, "spiffe_bundle_endpoint_profile": p.Profile,
	})
	return err
}

// ServeHTTP answers GET and HEAD for the bundle and the discovery document.
func (p *Publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case r.URL.Path == endpoint.BundleDiscovery && p.discovery != nil:
		p.serve(w, r, p.discovery, "")
	case r.URL.Path != p.path:
		http.NotFound(w, r)
	default:
		body, tag, err := p.current(r.Context())
		if err != nil {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "the bundle is not known yet", http.StatusServiceUnavailable)
			return
		}
		p.serve(w, r, body, tag)
	}
}

func (p *Publisher) serve(w http.ResponseWriter, r *http.Request, body []byte, tag string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache") // a copy must be validated by its tag
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// current returns the document of what is known now. The turn begins before the content is read, so that
// no request publishes older content with a later number.
func (p *Publisher) current(ctx context.Context) (body []byte, tag string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, tag, err = p.build(ctx)
	if ctx.Err() == nil { // the client has not left
		p.report(err)
	}
	return body, tag, err
}

// report logs a change of why the bundle cannot be published. p.mu is held.
func (p *Publisher) report(err error) {
	reason := ""
	if err != nil {
		reason = text.Clean(err.Error())
	}
	if reason == p.logged {
		return
	}
	if p.logged = reason; err != nil {
		p.Log.Warn("cannot publish SPIFFE bundle, clients get status 503", "trust_domain", p.TrustDomain, "error", reason)
		return
	}
	p.Log.Info("SPIFFE bundle is published again", "trust_domain", p.TrustDomain)
}

// build returns the document, made anew if its content has changed. p.mu is held.
func (p *Publisher) build(ctx context.Context) (body []byte, tag string, err error) {
	roots, jwks, unknown := p.content(ctx)
	if unknown != nil && p.Shared == nil {
		return nil, "", unknown
	}
	roots, number, err := p.numbered(ctx, roots, jwks)
	if err != nil && unknown != nil {
		err = fmt.Errorf("%w: %w", err, unknown)
	}
	if err != nil {
		return nil, "", err
	}
	if digest := digestOf(roots, jwks); p.body == nil || p.digest != digest || p.number != number {
		if p.body, err = p.document(roots, jwks, number); err != nil {
			return nil, "", err
		}
		p.number, p.digest = number, digest
	}
	return p.body, fmt.Sprintf(`"%d-%.16s"`, p.number, p.digest), nil
}

// content returns no roots after an error. A trust anchor need not be self-signed.
func (p *Publisher) content(ctx context.Context) (roots *pki.Bundle, jwks []byte, err error) {
	text, jwks, err := p.Content(ctx)
	if err != nil {
		return nil, nil, err
	}
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		return nil, nil, err
	}
	return pki.NewBundle(certs...), jwks, nil
}

// document returns the bundle with a number.
func (p *Publisher) document(roots *pki.Bundle, jwks []byte, number uint64) ([]byte, error) {
	bundle, err := p.bundleOf(roots, jwks)
	if err != nil {
		return nil, err
	}
	bundle.SetSequenceNumber(number)
	bundle.SetRefreshHint(defaultRefresh)
	return bundle.Marshal()
}

func (p *Publisher) bundleOf(roots *pki.Bundle, jwks []byte) (*spiffebundle.Bundle, error) {
	bundle := spiffebundle.FromX509Authorities(p.domain, roots.Certificates())
	if jwks == nil {
		return bundle, nil
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, errors.New("the keys of JWT-SVIDs or WIT-SVIDs are not a JWK set")
	}
	for _, key := range set.Keys {
		add := bundle.AddJWTAuthority
		if key.Use == jws.WITUse {
			add = bundle.AddWITAuthority
		}
		if err := add(key.KeyID, key.Key); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

// digestOf identifies the content: the same roots in another order are the same content.
func digestOf(roots *pki.Bundle, jwks []byte) string {
	prints := slices.Sorted(slices.Values(roots.Fingerprints()))
	sum := sha256.Sum256([]byte(strings.Join(prints, " ") + "\n" + string(jwks)))
	return hex.EncodeToString(sum[:])
}

// numberTimeout bounds the store. Requests wait for it.
const numberTimeout = 5 * time.Second

// numbered returns the roots that are published, and the number.
func (p *Publisher) numbered(ctx context.Context, roots *pki.Bundle, jwks []byte) (*pki.Bundle, uint64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), numberTimeout)
	defer cancel()
	least := uint64(max(p.Now().Unix(), 0)) // #nosec G115 -- never negative
	if p.Shared == nil {
		number, err := p.numberOf(ctx, digestOf(roots, jwks), least)
		return roots, number, err
	}
	if jwks != nil {
		return nil, 0, errors.New("servers that share a bundle have no keys of JWT-SVIDs or WIT-SVIDs")
	}
	return p.Shared(ctx, roots, least)
}

// numberOf returns the number of the content: another content has more than the last number, and no
// less than the time.
func (p *Publisher) numberOf(ctx context.Context, digest string, least uint64) (number uint64, err error) {
	if err := p.remember(ctx); err != nil || p.digest == digest {
		return p.number, err
	}
	number = max(p.number+1, least)
	if p.Numbered != nil {
		_ = p.Numbered.Store(ctx, number, digest) // it reports its own failures
	}
	return number, nil
}

// remember takes over the number of an earlier run.
func (p *Publisher) remember(ctx context.Context) (err error) {
	if p.asked || p.Numbered == nil {
		return nil
	}
	p.number, p.digest, err = p.Numbered.Last(ctx)
	p.asked = err == nil
	return err
}
