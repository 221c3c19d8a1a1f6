package endpoint

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const maxRedirects = 3

// Redirects selects which are followed: within the very same server only, three in a row
// at most.
type Redirects int

const (
	// FollowGET follows those of a GET.
	FollowGET Redirects = iota
	// FollowSame follows those that keep method and body, too: 307 and 308.
	FollowSame
	// ReplyRedirects follows none: a redirect is the reply.
	ReplyRedirects
)

// ErrRedirect is a redirect that is not followed. It quotes nothing from the server: its
// Location may repeat a token.
var ErrRedirect = errors.New("it redirects elsewhere")

func (c *Client) send(transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	if c.Redirects == ReplyRedirects {
		return transport.RoundTrip(req) // an http.Client would read the Location, and fail without one
	}
	client := http.Client{Transport: transport, CheckRedirect: c.checkRedirect}
	return client.Do(req)
}

func (c *Client) checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case c.Redirects == FollowGET && first.Method != http.MethodGet:
		return fmt.Errorf("%w, which a %s does not follow", ErrRedirect, first.Method)
	case !strings.EqualFold(next.URL.Host, first.URL.Host), next.URL.Scheme != first.URL.Scheme:
		return fmt.Errorf("%w, to another server or another scheme", ErrRedirect)
	case next.Method != first.Method:
		return fmt.Errorf("%w with a code that drops the request; 307 or 308 would keep it", ErrRedirect)
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", ErrRedirect, maxRedirects)
	}
	return nil
}
