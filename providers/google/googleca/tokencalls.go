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
)

const (
	// callTimeout ends each call of an exchange.
	callTimeout = 5 * time.Second
	// maxTokenReply has room for a token of 64 KiB, and what stands beside it.
	maxTokenReply = 256 << 10
	maxToken      = 64 << 10
)

// calls are those of one exchange, one after the other. The library says in a text what
// came of one, with the reply's body in it; here it is noted, bounded and judged before
// the library sees it. A redirect is not followed: a token is for nobody else.
type calls struct {
	server *rest.Transport
	hidden []ca.Token // what no text may have

	host   string // of the last call
	failed error  // why it has no reply that is taken
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

// hide keeps a token out of texts, also as a form has it.
func (c *calls) hide(t ca.Token) {
	c.hidden = append(c.hidden, t, ca.Token(url.QueryEscape(t.Reveal())))
}

// failure is what an exchange ended with.
func (c *calls) failure(ctx context.Context) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case c.failed != nil:
		return c.failed
	}
	return c.errorf(ca.Internal, "its answer is no token with an end")
}

func (c *calls) unanswered(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return c.errorf(ca.Deadline, "no answer in time, which is %s at most", callTimeout)
	case errors.Is(err, rest.ErrTooLong):
		return c.errorf(ca.Internal, "its answer has more than %d bytes", maxTokenReply)
	}
	return c.errorf(ca.Unavailable, "%s", c.clean(err.Error()))
}

// judge returns why a reply is not taken.
func (c *calls) judge(reply *http.Response, body []byte) error {
	switch status := reply.StatusCode; {
	case status >= 300 && status < 400:
		return c.errorf(ca.Denied, "it answered with %d, a redirect, which gets no token", status)
	case status != http.StatusOK:
		return c.refusal(reply, body)
	}
	var a struct {
		STS       string `json:"access_token"`
		TokenType string `json:"token_type"`
		IAM       string `json:"accessToken"`
	}
	if json.Unmarshal(body, &a) != nil {
		return c.errorf(ca.Internal, "it answered with something else than the JSON of a token")
	}
	token := a.STS + a.IAM
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c.errorf(ca.Internal, "it answered without a token that can stand in a header")
	}
	if a.STS != "" && !strings.EqualFold(a.TokenType, "Bearer") {
		return c.errorf(ca.Internal, "its token is none that is sent as a bearer token")
	}
	c.hide(ca.Token(token))
	return nil
}

// refusal is the error of a reply that is not 200: what it says in the words of RFC
// 6749, as the token service has it, or of Google's APIs.
func (c *calls) refusal(reply *http.Response, body []byte) error {
	var said struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	_ = json.Unmarshal(body, &said) // without it, the status has to do
	var word string
	if json.Unmarshal(said.Error, &word) != nil {
		var google struct{ Status, Message string }
		_ = json.Unmarshal(said.Error, &google)
		word, said.Description = google.Status, google.Message
	}
	text := fmt.Sprintf("it answered with %d", reply.StatusCode)
	if word != "" {
		text += ", " + c.clean(word)
	}
	if said.Description != "" {
		text += ": " + c.clean(said.Description)
	}
	err := c.errorf(refusedBecause(reply.StatusCode, word), "%s", text)
	if ca.ActionFor(err) == ca.Wait {
		err.RetryAfter = rest.RetryAfter(reply.Header)
	}
	return err
}

// refusedBecause is the table of the statuses and of what is about the token.
func refusedBecause(status int, word string) ca.Reason {
	switch {
	case status == http.StatusTooManyRequests:
		return ca.RateLimited
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return ca.Deadline
	case status == http.StatusUnauthorized, status == http.StatusBadRequest && word == "invalid_grant":
		return ca.Unauthenticated
	case status >= 400 && status < 500:
		return ca.Denied
	}
	return ca.Unavailable
}
