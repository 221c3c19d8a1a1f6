package endpoint

import (
	"fmt"
	"net/netip"
	"net/url"
)

// CheckURL returns an error where text is no https URL of a server. Plain http is
// taken to this very machine only, and only where loopbackHTTP says so.
func CheckURL(text string, loopbackHTTP bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("%.256q is no URL: https://<host>/<path> is needed", text)
	case u.User != nil:
		// Without the text: what stands before the @ is a password.
		return fmt.Errorf("the URL of %q has a user in it: https://<host>/<path> is needed", u.Host)
	case u.Scheme == "https", u.Scheme == "http" && loopbackHTTP && isLoopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%.256q is not https", text)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
