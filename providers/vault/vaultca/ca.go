package vaultca

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// CA is a [ca.Client] and [ca.RootSource]. It is safe for concurrent use and holds no
// connection; a token that it logged in for is kept in memory alone.
type CA struct {
	settings Settings
	client   *rest.Client
	sessions *sessions
	log      *slog.Logger
}

// Open checks the settings; the server is asked with the first request. An error is
// of the reason [ca.Invalid].
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	client, err := rest.New(rest.Config{
		URL: strings.TrimSuffix(settings.URL, "/"), Roots: rest.RootFile(settings.RootFile), ServerName: settings.ServerName,
		Pair: settings.pair(), Failure: words, Reason: reason,
	})
	if err != nil {
		return nil, err
	}
	if settings.Log == nil {
		settings.Log = slog.New(slog.DiscardHandler)
	}
	return &CA{settings: settings, client: client, sessions: newSessions(), log: settings.Log}, nil
}

// call is one with the token and the namespace; what it is hidden from is its errors.
func (c *CA) call(ctx context.Context, call rest.Call, token ca.Token, out any) error {
	call.Header = http.Header{"X-Vault-Request": {"true"}} // agents demand it against forged requests
	if c.settings.Namespace != "" {
		call.Header["X-Vault-Namespace"] = []string{c.settings.Namespace}
	}
	if token != "" {
		call.Header["X-Vault-Token"] = []string{token.Reveal()}
		call.Hide = append(call.Hide, token)
	}
	return c.client.Do(ctx, call, out)
}

// signed is the answer to a CSR.
type signed struct {
	Data struct {
		Certificate string   `json:"certificate"`
		IssuingCA   string   `json:"issuing_ca"`
		Chain       []string `json:"ca_chain"`
	} `json:"data"`
}

// CSRSign implements [ca.Client]: POST sign/ROLE, or sign-verbatim. A session that the
// server does not know any more is replaced by another one, once. Roots are told by
// [CA.Roots] alone.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	held, err := c.session(ctx, req.Token)
	if err != nil {
		return ca.Certificate{}, err
	}
	chain, err := c.sign(ctx, req, held.token)
	if ca.ReasonFor(err) == ca.Unauthenticated && held.ours {
		c.sessions.drop(held)
		if held, err = c.session(ctx, req.Token); err != nil {
			return ca.Certificate{}, err
		}
		chain, err = c.sign(ctx, req, held.token)
	}
	return ca.Certificate{Chain: chain}, err
}

func (c *CA) sign(ctx context.Context, req ca.SignRequest, token ca.Token) ([]byte, error) {
	body := map[string]any{"csr": string(req.CSR), "format": "pem", "exclude_cn_from_sans": true}
	if req.SubjectID != "" { // a role takes these where it does not take the CSR's
		body["uri_sans"] = req.SubjectID
	}
	if len(req.DNSNames) > 0 {
		body["alt_names"] = strings.Join(req.DNSNames, ",")
	}
	if len(req.IPAddresses) > 0 {
		body["ip_sans"] = joined(req)
	}
	if req.TTL > 0 {
		body["ttl"] = strconv.FormatInt(int64(req.TTL/time.Second), 10) + "s"
	}
	var reply signed
	err := c.call(ctx, rest.Call{Path: c.settings.signPath(), Body: body}, token, &reply)
	if ca.ReasonFor(err) == ca.Denied {
		return nil, c.whichDenial(ctx, token, err)
	}
	if err != nil {
		return nil, err
	}
	return c.chain(reply)
}

func joined(req ca.SignRequest) string {
	var ips []string
	for _, ip := range req.IPAddresses {
		ips = append(ips, ip.String())
	}
	return strings.Join(ips, ",")
}

// whichDenial tells a token that may not from one that is none (any more): the server
// answers 403 to both.
func (c *CA) whichDenial(ctx context.Context, token ca.Token, denied error) error {
	err := c.call(ctx, rest.Call{Path: "/v1/auth/token/lookup-self"}, token, nil)
	if ca.ReasonFor(err) != ca.Denied {
		return denied
	}
	return ca.Errorf(ca.Unauthenticated, "%s does not know the token, or not any more", c.client.Host())
}

func (c *CA) chain(reply signed) ([]byte, error) {
	above := reply.Data.Chain
	if len(above) == 0 {
		above = []string{reply.Data.IssuingCA}
	}
	certs, err := pki.ParseCertificates([]byte(strings.Join(append([]string{reply.Data.Certificate}, above...), "\n")))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%s answered with a chain that is none: %w", c.client.Host(), err)
	}
	return pki.EncodeCertificates(slices.DeleteFunc(certs, selfSigned)), nil
}

// selfSigned is a root, which does not belong into a chain.
func selfSigned(cert *x509.Certificate) bool {
	return cert.IsCA && cert.CheckSignatureFrom(cert) == nil
}

// words are what the server says in an error.
func words(body []byte) string {
	var said struct {
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(body, &said) // what is something else says nothing
	return strings.Join(said.Errors, "; ")
}

// reason knows what the server's own statuses are, and what 400 is about.
func reason(status int, body []byte) (ca.Reason, bool) {
	switch {
	case status == http.StatusPreconditionFailed, status == 472, status == 473: // a node that is behind, or stands by
		return ca.Unavailable, true
	case status == http.StatusBadRequest && strings.Contains(words(body), "not allowed by this role"):
		return ca.Denied, true
	}
	return 0, false
}
