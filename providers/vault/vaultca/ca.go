package vaultca

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// CA is a [ca.Client], [ca.RootSource], [ca.NameCertifier], [ca.RevocationSource] and [io.Closer]. It has no
// goroutine of its own and keeps no connection between calls. It keeps session tokens, in memory only, until Close.
// It is safe for concurrent use.
type CA struct {
	settings Settings
	client   *rest.Client
	sessions *sessions
	log      *slog.Logger
	now      func() time.Time
}

// Open checks the settings without access to the network: the first call logs in. An error
// has the reason [ca.Invalid].
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	client, err := rest.New(rest.Config{
		URL: settings.URL, TLS: settings.TLS, Failure: words, Own: own, Reason: reason,
	})
	if err != nil {
		return nil, err
	}
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	return &CA{settings: settings, client: client, sessions: newSessions(), log: settings.Log, now: time.Now}, nil
}

// call makes a call with the namespace and the token. No error contains the token.
func (c *CA) call(ctx context.Context, call rest.Call, token ca.Token, out any) error {
	return c.client.Do(ctx, c.prepared(call, token), out)
}

func (c *CA) prepared(call rest.Call, token ca.Token) rest.Call {
	call.Header = http.Header{"X-Vault-Request": {"true"}} // a Vault agent may require it against forged requests
	if c.settings.Namespace != "" {
		call.Header["X-Vault-Namespace"] = []string{c.settings.Namespace}
	}
	if token != "" {
		call.Header["X-Vault-Token"] = []string{token.Reveal()}
		call.Hide = append(call.Hide, token)
	}
	return call
}

// signed is the reply to a CSR.
type signed struct {
	Data struct {
		Certificate string   `json:"certificate"`
		IssuingCA   string   `json:"issuing_ca"`
		Chain       []string `json:"ca_chain"`
	} `json:"data"`
}

// CSRSign implements [ca.Client] by POST sign/ROLE or sign-verbatim. If the session is gone on
// the server, CSRSign logs in and tries once more. The reply has no roots; see [CA.Roots].
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	names, err := c.settings.namesOf(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	chain, again, err := c.try(ctx, req)
	if again {
		chain, _, err = c.try(ctx, req)
	}
	if err == nil {
		err = names.check(chain)
	}
	if err != nil {
		return ca.Certificate{}, err
	}
	return ca.Certificate{Chain: chain}, nil
}

// try signs once. again reports that another login may help.
func (c *CA) try(ctx context.Context, req ca.SignRequest) (chain []byte, again bool, err error) {
	held, err := c.session(ctx, req.Token)
	if err != nil {
		return nil, false, err
	}
	chain, err = c.sign(ctx, req, held.token)
	if ca.ReasonFor(err) == ca.Unauthenticated {
		c.sessions.drop(held)
		return nil, held.ours, err
	}
	return chain, false, err
}

func (c *CA) sign(ctx context.Context, req ca.SignRequest, token ca.Token) ([]byte, error) {
	var reply signed
	err := c.call(ctx, rest.Call{Path: c.settings.signPath(), Body: c.settings.signBody(req)}, token, &reply)
	if ca.ReasonFor(err) == ca.Denied && !saidByRole(err.Error()) {
		return nil, c.whichDenial(ctx, token, err)
	}
	if err != nil {
		return nil, err
	}
	return c.chain(reply)
}

// signBody returns the body of the call. A role takes the names from the CSR, or with
// use_csr_sans=false from the call, so both have the same names.
func (s Settings) signBody(req ca.SignRequest) map[string]any {
	body := map[string]any{"csr": string(req.CSR), "format": "pem", "exclude_cn_from_sans": true}
	if req.SubjectID != "" {
		body["uri_sans"] = req.SubjectID
	}
	if len(req.DNSNames) > 0 {
		body["alt_names"] = strings.Join(req.DNSNames, ",")
	}
	if len(req.IPAddresses) > 0 {
		body["ip_sans"] = joined(req.IPAddresses)
	}
	if req.TTL > 0 {
		body["ttl"] = strconv.FormatInt(max(1, int64(req.TTL/time.Second)), 10) + "s"
	}
	if s.Verbatim { // which adds no usages by itself
		body["ext_key_usage"] = []string{"ServerAuth", "ClientAuth"}
	}
	return body
}

func joined(addresses []netip.Addr) string {
	var texts []string
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return strings.Join(texts, ",")
}

// whichDenial distinguishes a token without permission from an invalid one: the server answers
// 403 to both, and the policy "default" lets a token look itself up.
func (c *CA) whichDenial(ctx context.Context, token ca.Token, denied error) error {
	err := c.call(ctx, rest.Call{Path: lookupPath}, token, nil)
	if ca.ReasonFor(err) != ca.Denied {
		return denied
	}
	return ca.Errorf(ca.Unauthenticated, "%s does not accept the token: it is unknown or expired, or may not look itself up", c.client.Host())
}

func (c *CA) chain(reply signed) ([]byte, error) {
	above := reply.Data.Chain
	if len(above) == 0 {
		above = []string{reply.Data.IssuingCA}
	}
	return c.client.Chain(append([]string{reply.Data.Certificate}, above...)...)
}

// words returns the text of a server's error.
func words(body []byte) string {
	var said struct {
		Errors []string `json:"errors"`
	}
	_ = json.Unmarshal(body, &said) // any other body has no message
	return strings.Join(said.Errors, "; ")
}

// own reports whether a body has the form of Vault's errors. The list may be empty, as in a 404 for
// what does not exist.
func own(_ int, body []byte) bool {
	var said struct {
		Errors *[]string `json:"errors"`
	}
	return json.Unmarshal(body, &said) == nil && said.Errors != nil
}

// reason maps the server's own statuses, and a 400 that a role answers.
func reason(status int, body []byte) (ca.Reason, bool) {
	switch status {
	case http.StatusPreconditionFailed, 472, 473, http.StatusTemporaryRedirect: // a node that lags behind or is on standby
		return ca.Unavailable, true
	case http.StatusBadRequest:
		return ca.Denied, saidByRole(words(body))
	}
	return 0, false
}

// saidByRole reports whether a role refused a name or a kind of name: "… not allowed by this
// role", "… not allowed in this role, but …", "… not valid for this role".
func saidByRole(text string) bool {
	return strings.Contains(text, "this role") && (strings.Contains(text, "not allowed") || strings.Contains(text, "not valid"))
}
