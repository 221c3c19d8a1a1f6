package googleca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

const (
	// callTimeout bounds each call of an exchange.
	callTimeout = 5 * time.Second
	// maxTokenReply and maxToken are limits in bytes.
	maxTokenReply = 256 << 10
	maxToken      = 64 << 10
)

// calls makes the calls of one exchange, one after the other. It bounds and checks each reply
// before the library sees it, as the library's errors quote the body. It follows no redirect:
// a token is for the configured host alone.
type calls struct {
	server *rest.Transport
	hidden []ca.Token // removed from errors

	host   string // of the last call
	failed error  // why it has no usable reply
}

// RoundTrip implements [http.RoundTripper].
func (c *calls) RoundTrip(req *http.Request) (*http.Response, error) {
	c.host = req.URL.Host
	reply, err := c.server.RoundTrip(req)
	if err != nil {
		c.failed = c.unanswered(err)
		return nil, c.failed
	}
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	if c.failed = c.judge(reply, body); c.failed != nil {
		return nil, c.failed
	}
	reply.Body = io.NopCloser(bytes.NewReader(body))
	return reply, nil
}

func (c *calls) errorf(reason ca.Reason, format string, args ...any) *ca.Error {
	return ca.Errorf(reason, "token exchange at %s: %s", c.host, fmt.Sprintf(format, args...))
}

func (c *calls) clean(foreign string) string { return wire.CleanText(foreign, c.hidden...) }

// hide removes a token from errors, also in the encoding of a form.
func (c *calls) hide(t ca.Token) {
	c.hidden = append(c.hidden, t, ca.Token(url.QueryEscape(t.Reveal())))
}

// failure returns the error of an exchange.
func (c *calls) failure(ctx context.Context) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case c.failed != nil:
		return c.failed
	}
	return c.errorf(ca.Internal, "the reply has no token with an expiry")
}

func (c *calls) unanswered(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return c.errorf(ca.Deadline, "no reply within %s", callTimeout)
	case errors.Is(err, rest.ErrTooLong):
		return c.errorf(ca.Internal, "the reply has more than %d bytes", maxTokenReply)
	}
	return c.errorf(ca.Unavailable, "%s", c.clean(err.Error()))
}

// judge returns an error for a reply that cannot be used.
func (c *calls) judge(reply *http.Response, body []byte) error {
	switch status := reply.StatusCode; {
	case status >= 300 && status < 400:
		return c.errorf(ca.Denied, "it answered with %d, a redirect, which is not followed", status)
	case status != http.StatusOK:
		return exchange.Refusal(c.host, status, reply.Header, body, c.hidden...)
	}
	var a struct {
		STS       string `json:"access_token"`
		TokenType string `json:"token_type"`
		IAM       string `json:"accessToken"`
	}
	if json.Unmarshal(body, &a) != nil {
		return c.errorf(ca.Internal, "it answered with invalid JSON")
	}
	token := a.STS + a.IAM
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c.errorf(ca.Internal, "it answered without a valid token")
	}
	if a.STS != "" && !strings.EqualFold(a.TokenType, "Bearer") {
		return c.errorf(ca.Internal, "its token is not a bearer token")
	}
	c.hide(ca.Token(token))
	return nil
}
