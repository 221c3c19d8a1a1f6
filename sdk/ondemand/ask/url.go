package ask

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// URLConfig configures [NewURL].
type URLConfig struct {
	// URL is asked by GET, with the name as the query parameter "domain" beside those that it
	// has, as Caddy asks. https, or http to this machine. Required.
	URL string
	// RootFile holds the roots (PEM) that the server is verified with. It is read for each
	// call. Default: the system's.
	RootFile string
	// Timeout ends a call. Default: 5 seconds.
	Timeout time.Duration
}

const defaultTimeout = 5 * time.Second

// URL asks an HTTP endpoint. It uses no proxy, follows no redirect and reads no body. It is safe for
// concurrent use.
type URL struct {
	client *endpoint.Client
	prefix string // up to the name
	host   string
}

// NewURL checks the URL and returns its decider. Nothing is asked yet.
func NewURL(config URLConfig) (*URL, error) {
	if err := endpoint.CheckURL(config.URL, true); err != nil {
		return nil, err
	}
	u, err := url.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	u.Fragment, u.RawFragment = "", ""
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "domain="
	return &URL{
		client: endpoint.New(endpoint.Options{
			RootFile: config.RootFile, Redirects: endpoint.ReplyRedirects, StatusOnly: true, Timeout: config.Timeout, KeepAlive: true,
		}),
		prefix: u.String(), host: u.Host,
	}, nil
}

// Allowed returns true for a status of 2xx and false for one of 4xx, except for 408 and 429. Any
// other reply, a redirect too, and no reply in time are errors of package ca: RateLimited with the
// server's Retry-After for 429, else Unavailable or Deadline.
func (u *URL) Allowed(ctx context.Context, name string) (bool, error) {
	if err := checkFolded(name); err != nil {
		return false, err
	}
	reply, err := u.client.Do(ctx, http.MethodGet, u.prefix+name, nil, nil)
	if err != nil {
		reason := ca.ReasonFor(err)
		if reason == ca.Unknown {
			reason = ca.Unavailable
		}
		return false, ca.Errorf(reason, "failed to ask %s: %s", u.host, text.Clean(err.Error()))
	}
	switch status := reply.Status; {
	case status/100 == 2:
		return true, nil
	case status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		return false, nil
	}
	return false, undecided(u.host, reply)
}

func undecided(host string, reply endpoint.Reply) error {
	reason := ca.Unavailable
	if reply.Status == http.StatusTooManyRequests {
		reason = ca.RateLimited
	}
	err := ca.Errorf(reason, "%s answered with status %d, which is neither a yes (2xx) nor a no (4xx)", host, reply.Status)
	if reply.Status/100 == 3 {
		err.Message += "; redirects are not followed: configure the URL that it redirects to"
	}
	err.RetryAfter = endpoint.RetryAfter(reply.Header.Get("Retry-After"), time.Now())
	return err
}

// Close ends the connections that are kept.
func (u *URL) Close() { u.client.Close() }
