package endpoint

import (
	"errors"
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

// BundleDiscovery is the path at which a client finds the bundle endpoint of a trust domain (SPIFFE
// Discovery, proposed).
const BundleDiscovery = "/.well-known/wimse-trust-domain"

// CheckBundleURL returns an error that says what the URL of a SPIFFE bundle endpoint must be.
func CheckBundleURL(text string) error {
	if err := CheckURL(text, false); err != nil {
		return err
	}
	switch u, err := url.Parse(text); {
	case err != nil:
		return err
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return errors.New("the URL of a bundle endpoint has neither query nor fragment")
	case u.Path == BundleDiscovery:
		return errors.New("that is the path of the discovery document; write another")
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
