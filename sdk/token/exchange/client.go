package exchange

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// maxReply leaves room for a 64 KiB token and the fields beside it.
const maxReply = 256 << 10

// Client exchanges tokens at one server. It is safe for concurrent use.
type Client struct {
	config Config
	host   string
	server *endpoint.Client
}

var _ ca.TokenExchanger = (*Client)(nil)

// call is one exchange: the request, and the credentials to redact from texts.
type call struct {
	*Client
	form   url.Values
	header string // the Authorization header
	hidden []ca.Token
}

// ExchangeToken makes one request. A refusal (4xx) is [ca.Unauthenticated] if it concerns
// a credential, else [ca.Denied], and has the server's error and error_description. A
// redirect, which is not followed, is a refusal too. Any other failure may be retried: a
// server that is unreachable, slow, overloaded (with its Retry-After), or sends nonsense.
// No error shows a token or the client secret.
func (c *Client) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	out := &call{Client: c, form: formOf(req)}
	out.hide(req.SubjectToken)
	if err := out.addActor(ctx); err != nil {
		return ca.ExchangedToken{}, err
	}
	if err := out.authenticate(ctx); err != nil {
		return ca.ExchangedToken{}, err
	}
	reply, err := out.post(ctx)
	if err != nil {
		return ca.ExchangedToken{}, err
	}
	return out.read(reply)
}

func formOf(req ca.TokenRequest) url.Values {
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {req.SubjectToken.Reveal()}}
	for name, value := range map[string]string{
		"subject_token_type": req.SubjectTokenType, "audience": req.Audience, "resource": req.Resource,
		"scope": strings.Join(req.Scopes, " "), "requested_token_type": req.RequestedType,
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	if req.SubjectTokenType == "" {
		form.Set("subject_token_type", token.TypeJWT)
	}
	return form
}

// addActor reads the actor token; without one, no request is made.
func (c *call) addActor(ctx context.Context) error {
	if c.config.Actor == nil {
		return nil
	}
	actor, err := c.config.Actor.Token(ctx)
	if err != nil {
		return fmt.Errorf("the actor's token: %w", err)
	}
	if actor.Token == "" {
		return ca.Errorf(ca.Unavailable, "the actor has no token")
	}
	c.hide(actor.Token)
	c.form.Set("actor_token", actor.Token.Reveal())
	c.form.Set("actor_token_type", c.config.ActorType)
	return nil
}

// authenticate adds the client secret; a client certificate replaces it.
func (c *call) authenticate(ctx context.Context) error {
	auth := c.config.Auth
	if auth.SecretFile == "" {
		if auth.ClientID != "" {
			c.form.Set("client_id", auth.ClientID)
		}
		return nil
	}
	secret, err := token.File{Path: auth.SecretFile}.Token(ctx)
	if err != nil {
		return fmt.Errorf("the client's secret: %w", err)
	}
	c.hide(secret.Token)
	if auth.SecretInBody {
		c.form.Set("client_id", auth.ClientID)
		c.form.Set("client_secret", secret.Token.Reveal())
		return nil
	}
	// Both are form-encoded first, unlike in HTTP's own Basic (RFC 6749, 2.3.1).
	pair := url.QueryEscape(auth.ClientID) + ":" + url.QueryEscape(secret.Token.Reveal())
	encoded := base64.StdEncoding.EncodeToString([]byte(pair))
	c.hide(ca.Token(encoded))
	c.header = "Basic " + encoded
	return nil
}

// hide redacts a credential from all texts, also in its form-encoded form.
func (c *call) hide(t ca.Token) {
	c.hidden = append(c.hidden, t, ca.Token(url.QueryEscape(t.Reveal())))
}

func (c *call) clean(foreign string) string { return text.Redact(foreign, c.hidden...) }

func (c *call) post(ctx context.Context) (endpoint.Reply, error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	if c.header != "" {
		header.Set("Authorization", c.header)
	}
	reply, err := c.server.Do(ctx, http.MethodPost, c.config.URL, header, []byte(c.form.Encode()))
	if err != nil {
		return endpoint.Reply{}, c.unanswered(err)
	}
	return reply, nil
}
