package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxSaid bounds what [HTTPError] reads of a body; much less gets into the error.
const maxSaid = 4 << 10

// HTTPError returns the error that an authority's HTTP reply stands for, or nil for 2xx
// other than 202 Accepted. The reason goes by the status: 401 is [Unauthenticated], 403
// [Denied], 409 [Aborted], 425 and 429 [RateLimited], 500 [Internal], 202 [Pending]; 408 and
// all other 5xx are [Unavailable], everything else is [Invalid]. Retry-After counts in seconds or as a
// date, up to a day.
//
// The error has the beginning of a body that is text or JSON, cleaned, without the tokens
// and without the request's Authorization. HTTPError reads up to 4 KiB of the body, for as
// long as the request's context lasts, and does not close it.
func HTTPError(resp *http.Response, tokens ...Token) error {
	if resp.StatusCode/100 == 2 && resp.StatusCode != http.StatusAccepted {
		return nil
	}
	refusal := endpoint.Refusal{
		Reason: endpoint.Reason(resp.StatusCode), Host: "the authority", Call: "the request", Status: resp.StatusCode, Header: resp.Header,
	}
	if req := resp.Request; req != nil && req.URL != nil {
		tokens = append(credentialsOf(req), tokens...)
		refusal.Host, refusal.Call = text.Clean(req.URL.Host), text.Redact(req.Method+" "+req.URL.Path, tokens...)
	}
	refusal.Said = saidIn(resp, tokens)
	return refusal.Error()
}

// maxReply bounds a body that [DoHTTP] returns.
const maxReply = 2 << 20

// maxRedirects is the default of [http.Client].
const maxRedirects = 10

// DoHTTP sends a request, with [TraceParent], and returns the body of a 2xx reply, 2 MiB at most. Any other reply
// is the error of [HTTPError]. Without a reply the reason is [ca.Unavailable], or
// [ca.Deadline] or [ca.Canceled] if the context ended; the tokens, and the request's
// Authorization, are not in the error. A redirect from https to another scheme is refused.
func DoHTTP(client *http.Client, req *http.Request, tokens ...Token) ([]byte, error) {
	tokens = append(credentialsOf(req), tokens...)
	resp, err := neverToPlaintext(client).Do(traced(req)) //nolint:gosec // the provider chooses where to
	if err != nil {
		return nil, unanswered(req, err, tokens)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if err := HTTPError(resp, tokens...); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, unanswered(req, err, tokens)
	case len(body) > maxReply:
		return nil, ca.Errorf(ca.Internal, "%s returned more than %d bytes", text.Clean(req.URL.Host), maxReply)
	}
	return body, nil
}

// neverToPlaintext returns a client that follows no redirect from https to http: [http.Client]
// sends the Authorization header there, too, if the host is the same.
func neverToPlaintext(client *http.Client) *http.Client {
	strict := *client
	strict.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https":
			return errors.New("a redirect from https to http is refused")
		case client.CheckRedirect != nil:
			return client.CheckRedirect(req, via)
		case len(via) >= maxRedirects:
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		return nil
	}
	return &strict
}

func unanswered(req *http.Request, err error, tokens []Token) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // its URL may hold a credential
	}
	reason := ca.Unavailable
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		reason = ca.ReasonFor(err)
	}
	return ca.Errorf(reason, "%s cannot be reached: %s", text.Clean(req.URL.Host), text.Redact(err.Error(), tokens...))
}

// credentialsOf returns what the authority may repeat of a request's credentials.
func credentialsOf(req *http.Request) (tokens []Token) {
	for _, header := range req.Header.Values("Authorization") {
		_, credential, _ := strings.Cut(header, " ")
		if credential = strings.TrimSpace(credential); credential != "" {
			tokens = append(tokens, ca.Token(credential))
		}
	}
	if _, password, ok := req.BasicAuth(); ok && password != "" {
		tokens = append(tokens, ca.Token(password))
	}
	return tokens
}

// saidIn returns the beginning of a body that a person can read.
func saidIn(resp *http.Response, tokens []Token) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.Body == nil || kind != "text/plain" && kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return ""
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) // half a sentence is better than none
	return text.Redact(strings.TrimSpace(string(said)), tokens...)
}
