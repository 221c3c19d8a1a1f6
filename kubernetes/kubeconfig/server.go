package kubeconfig

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
)

const rightServer = "must look like https://api.example.org:6443"

// parseServer parses the URL of an API server. Errors do not quote an unparsable URL,
// which may contain a password.
func parseServer(text string, plain bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		return nil, fmt.Errorf("server is not the URL of a host: %s", rightServer)
	case u.User != nil:
		return nil, fmt.Errorf("server URL contains a user: %s", rightServer)
	case u.Scheme == "http" && !plain:
		return nil, fmt.Errorf("server URL uses http, without TLS: %s", rightServer)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("server URL does not use https: %s", rightServer)
	case strings.ContainsAny(text, "?#\\"):
		return nil, fmt.Errorf("server URL contains a query, a fragment or a backslash: %s", rightServer)
	case !isHost(u.Hostname()) || !isPort(u.Port()):
		return nil, fmt.Errorf("server URL has an invalid host or port: %s", rightServer)
	case u.RawPath != "" || u.Path != "" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") && u.Path != "/":
		return nil, fmt.Errorf("server URL has an ambiguous path: %s", rightServer)
	}
	return u, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

var hostName = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)

// isHost reports whether text is a host name or an address. A name whose last label
// begins with a digit is neither: the system's resolver takes "127.1" for an address.
func isHost(text string) bool {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Zone() == ""
	}
	return len(text) <= 253 && hostName.MatchString(text)
}

// checkProxy rejects a password, which errors of the transport would reveal.
func checkProxy(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("proxy-url is not the URL of a host, or contains a user")
	}
	return nil
}

// oneServer restricts requests to one server: client-go would add the credential to
// redirected requests, wherever they lead.
type oneServer struct {
	scheme, host string
	next         http.RoundTripper
}

var errElsewhere = errors.New("request to another server than the cluster's, for example after a redirect")

func (o *oneServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != o.host || req.URL.Scheme != o.scheme {
		return nil, errElsewhere
	}
	return o.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport to close its connections.
func (o *oneServer) WrappedRoundTripper() http.RoundTripper { return o.next }
