package endpoint

import (
	"fmt"
	"net/netip"
	"net/url"
)

// CheckURL returns an error unless text is an https URL of a server. Plain http is
// accepted only to this machine, and only with loopbackHTTP.
func CheckURL(text string, loopbackHTTP bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("invalid URL %.256q: https://<host>/<path> is needed", text)
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
