package acmeca

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// callTimeout bounds one request to the server, and maxReply its body.
	callTimeout = 20 * time.Second
	maxReply    = 1 << 20
	// maxNonces are kept for further requests. A rejected one is replaced by another up to
	// maxAttempts times: Pebble rejects up to half of them to try its clients.
	maxNonces   = 64
	maxAttempts = 24
	// directoryLife is how long a directory is used.
	directoryLife = time.Hour
)

// directory is where the server's resources are (RFC 8555, section 7.1.1).
type directory struct {
	NewNonce    string `json:"newNonce"`
	NewAccount  string `json:"newAccount"`
	NewOrder    string `json:"newOrder"`
	KeyChange   string `json:"keyChange"`
	RenewalInfo string `json:"renewalInfo"`
	Meta        struct {
		Terms    string            `json:"termsOfService"`
		EAB      bool              `json:"externalAccountRequired"`
		Profiles map[string]string `json:"profiles"`
	} `json:"meta"`
}

// server makes signed requests to one ACME server. It is safe for concurrent use.
type server struct {
	url    *url.URL
	client http.RoundTripper
	now    func() time.Time

	mu      sync.Mutex
	held    directory
	fetched time.Time
	nonces  []string
}

// reply is what the server answered, with a status of 2xx.
type reply struct {
	header http.Header
	body   []byte
}

// into decodes the body, which is JSON. A body of another type comes from a proxy as a rule, and
// is no verdict on the order.
func (r reply) into(host string, out any) error {
	if json.Unmarshal(r.body, out) != nil { // the cause would quote it
		return ca.Errorf(ca.Unavailable, "%s answered with invalid JSON", host)
	}
	return nil
}

// at checks a URL in a reply: it must be an https URL of the same server. A server that
// names others could have this machine send requests anywhere.
func (s *server) at(told string) (string, error) {
	u, err := url.Parse(told)
	if err != nil || u.Scheme != s.url.Scheme || origin(u) != origin(s.url) || u.User != nil {
		return "", ca.Errorf(ca.Internal, "%s returned the URL %.256q: only https URLs of the same host and port are followed", s.url.Host, told)
	}
	return u.String(), nil
}

// origin is the host in lower case and the port of an https URL, as a server may spell them in
// another way than its operator does. Letters outside of ASCII are left alone.
func origin(u *url.URL) string {
	lower := func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return net.JoinHostPort(strings.Map(lower, u.Hostname()), cmp.Or(u.Port(), "443"))
}

// send makes one request.
func (s *server) send(ctx context.Context, method, to string, header http.Header, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil { // the cause would quote the URL
		return reply{}, ca.Errorf(ca.Internal, "%s: a request cannot be made", s.url.Host)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", "countersign-provider-acme") // section 6.1 requires one
	resp, err := s.client.RoundTrip(req)
	if err != nil {
		return reply{}, s.unanswered(err, req)
	}
	s.keep(resp.Header.Get("Replay-Nonce"))
	defer func() { _ = resp.Body.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return reply{}, s.unanswered(err, req)
	}
	if resp.StatusCode/100 != 2 {
		return reply{}, refused(s.url.Host, provider.CleanText(method+" "+req.URL.Path), resp.StatusCode, resp.Header, content)
	}
	return reply{resp.Header, content}, nil
}

func (s *server) unanswered(err error, req *http.Request) error {
	call := provider.CleanText(req.Method + " " + req.URL.Path)
	switch {
	case req.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return ca.Errorf(ca.Unavailable, "%s did not answer %s in time", s.url.Host, call)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ca.Errorf(ca.ReasonFor(err), "%s did not answer %s in time", s.url.Host, call)
	case errors.Is(err, rest.ErrTooLong):
		return ca.Errorf(ca.Internal, "%s answered %s with more than %d bytes", s.url.Host, call, maxReply)
	}
	return ca.Errorf(ca.Unavailable, "%s cannot be reached: %s", s.url.Host, provider.CleanText(err.Error()))
}

// directory returns the server's resources.
func (s *server) directory(ctx context.Context) (directory, error) {
	s.mu.Lock()
	held, fetched := s.held, s.fetched
	s.mu.Unlock()
	if !fetched.IsZero() && s.now().Sub(fetched) < directoryLife {
		return held, nil
	}
	got, err := s.send(ctx, http.MethodGet, s.url.String(), nil, nil)
	if err != nil {
		return directory{}, err
	}
	var dir directory
	if err := got.into(s.url.Host, &dir); err != nil {
		return directory{}, err
	}
	for name, told := range map[string]string{"newNonce": dir.NewNonce, "newAccount": dir.NewAccount, "newOrder": dir.NewOrder} {
		if told == "" {
			return directory{}, ca.Errorf(ca.Invalid, "url: %s has no ACME directory there: %s is missing", s.url.Host, name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.fetched = dir, s.now()
	return dir, nil
}

// keep keeps a nonce for a further request.
func (s *server) keep(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nonce != "" && len(nonce) <= 512 && len(s.nonces) < maxNonces {
		s.nonces = append(s.nonces, nonce)
	}
}

// take returns a kept nonce, the latest, or "".
func (s *server) take() (nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.nonces) - 1; last >= 0 {
		nonce, s.nonces = s.nonces[last], s.nonces[:last]
	}
	return nonce
}

func (s *server) nonce(ctx context.Context) (string, error) {
	if nonce := s.take(); nonce != "" {
		return nonce, nil
	}
	dir, err := s.directory(ctx)
	if err != nil {
		return "", err
	}
	to, err := s.at(dir.NewNonce)
	if err != nil {
		return "", err
	}
	got, err := s.send(ctx, http.MethodHead, to, nil, nil)
	if err != nil {
		return "", err
	}
	if nonce := s.take(); nonce != "" {
		return nonce, nil
	}
	if nonce := got.header.Get("Replay-Nonce"); nonce != "" && len(nonce) <= 512 { // others have taken it
		return nonce, nil
	}
	return "", ca.Errorf(ca.Internal, "%s returned no nonce", s.url.Host)
}

// signer signs requests: as the account, or by its key alone before the account is known.
type signer struct {
	key crypto.Signer
	kid string // the account's URL; empty: send the public key
}

// post sends a signed request with a payload in JSON, or with an empty one if that is nil
// (POST-as-GET). A rejected nonce is replaced.
func (s *server) post(ctx context.Context, as signer, told string, payload any) (reply, error) {
	to, err := s.at(told)
	if err != nil {
		return reply{}, err
	}
	encoded := []byte{} // nil would be no payload instead of an empty one
	if payload != nil {
		if encoded, err = json.Marshal(payload); err != nil {
			return reply{}, ca.Errorf(ca.Internal, "encode a request: %w", err)
		}
	}
	header := http.Header{"Content-Type": {"application/jose+json"}}
	for attempt := 1; ; attempt++ {
		nonce, err := s.nonce(ctx)
		if err != nil {
			return reply{}, err
		}
		body, err := as.sign(to, nonce, encoded)
		if err != nil {
			return reply{}, err
		}
		got, err := s.send(ctx, http.MethodPost, to, header, body)
		if kindOf(err) != "badNonce" || attempt == maxAttempts {
			return got, err
		}
	}
}

// kindOf returns the kind of a server's problem.
func kindOf(err error) string {
	if f, ok := errors.AsType[failure](err); ok {
		return f.kind
	}
	return ""
}

// sign returns a JWS for one URL (RFC 8555, section 6.2).
func (g signer) sign(to, nonce string, payload []byte) ([]byte, error) {
	opts := &jose.SignerOptions{EmbedJWK: g.kid == ""}
	opts = opts.WithHeader("url", to)
	if nonce != "" {
		opts = opts.WithHeader("nonce", nonce)
	}
	algorithm, err := algorithmOf(g.key)
	if err != nil {
		return nil, err
	}
	return signed(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: g.key, KeyID: g.kid}}, opts, payload)
}

func signed(key jose.SigningKey, opts *jose.SignerOptions, payload []byte) ([]byte, error) {
	maker, err := jose.NewSigner(key, opts)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "sign a request: %w", err)
	}
	made, err := maker.Sign(payload)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "sign a request: %w", err)
	}
	return []byte(made.FullSerialize()), nil
}
