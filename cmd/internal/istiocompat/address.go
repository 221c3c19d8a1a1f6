package istiocompat

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"

	hostaddress "github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// address is CA_ADDR, parsed.
type address struct {
	text   string
	scheme string // in lower case; empty: none
	rest   string // what follows the scheme, or all
}

func parseAddress(text string) address {
	if strings.HasPrefix(text, "arn:") { // no scheme: AWS's names have colons
		return address{text: text, rest: text}
	}
	scheme, rest, _ := strings.Cut(text, ":")
	if rest, ok := strings.CutPrefix(rest, "//"); ok || strings.EqualFold(scheme, file) {
		return address{text, strings.ToLower(scheme), rest}
	}
	return address{text: text, rest: text}
}

// pool is the name of a Google CA pool.
var pool = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/caPools/[^/]+$`)
})

const googleForms = "projects/P/locations/L/caPools/N for GoogleCAS, Mesh CA's host:port for GoogleCA"

// chooses returns the provider that the address alone implies, and why.
func (a address) chooses() (provider, rule string) {
	switch {
	case a.scheme != "":
		return providerCalled(a.scheme), "begins with " + a.scheme + ":"
	case pool().MatchString(a.text):
		return google, "is a Google CA pool"
	case strings.HasPrefix(a.text, "arn:"):
		return aws, "is an ARN of AWS"
	case strings.Contains(a.text, "googleapis.com"), strings.Contains(a.text, "meshca"):
		return google, "is an address at Google"
	}
	return citadel, "is host:port, as istiod's is"
}

// isURL reports whether the scheme is that of a URL, and not a provider.
func (a address) isURL() bool { return a.scheme == "https" || a.scheme == "http" }

// withoutScheme returns a URL as PROVIDER:// takes it, without a password. Without a scheme it is
// one of https.
func (a address) withoutScheme() string {
	shown := text.WithoutPassword(a.text)
	if a.scheme == "http" {
		return shown
	}
	_, rest, _ := strings.Cut(shown, "://")
	return rest
}

// of returns the address for a provider, which was called by a name that may be one of Istio's, or
// that of an entry.
// Which setting it becomes, and whether it is one, is known to the provider.
func (a address) of(provider, called string) (string, error) {
	own := providerCalled(a.scheme) == provider || a.scheme != "" && a.scheme == called
	switch {
	case a.text == "":
		return "", nil
	case own && !wire.ValidName(provider):
		return "", errors.New("write PROVIDER://ADDRESS with the name of an installed provider")
	case a.scheme != "" && a.rest == "":
		return "", errors.New("write PROVIDER://ADDRESS, or CA_PROVIDER alone for the provider's own default")
	case provider == file:
		return a.folder()
	case a.scheme == file:
		return "", errors.New(`only the provider "file" takes a folder`)
	case provider == citadel && (!hostaddress.IsHostPort(a.rest) || a.scheme != "" && !own):
		return "", errors.New("write host:port of istiod, or file:///FOLDER, PROVIDER://ADDRESS, projects/P/locations/L/caPools/N or arn:aws:acm-pca:… for another CA")
	case provider == google:
		return a.google(called)
	case own:
		return a.rest, nil
	}
	return a.text, nil
}

func (a address) folder() (string, error) {
	u, err := url.Parse(a.text)
	if err != nil || a.scheme != file || u.Host != "" || !path.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New(`write file:///FOLDER, the folder of a CA, for the provider "file"`)
	}
	return u.Path, nil
}

// google checks that the address is one of the CA that Istio's name means.
func (a address) google(called string) (string, error) {
	isPool := pool().MatchString(a.rest)
	if !isPool && !hostaddress.IsHostPort(a.rest) || isPool && called == "googleca" || !isPool && called == "googlecas" || a.scheme != "" && providerCalled(a.scheme) != google {
		return "", errors.New("write " + googleForms)
	}
	return a.rest, nil
}

// protocolOf returns the protocol of Google's CA at an address.
func protocolOf(address string) string {
	if pool().MatchString(address) {
		return "cas"
	}
	return meshCA
}
