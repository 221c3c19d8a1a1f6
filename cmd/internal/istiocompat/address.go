package istiocompat

import (
	"errors"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

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
var pool = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/caPools/[^/]+$`)

const googleForms = "projects/P/locations/L/caPools/N for GoogleCAS, Mesh CA's host:port for GoogleCA"

// privateCA is the ARN of a CA of AWS Private CA, in any partition.
var privateCA = regexp.MustCompile(`^arn:aws[a-z-]*:acm-pca:[a-z0-9-]+:[0-9]{12}:certificate-authority/[0-9A-Za-z-]+$`)

// chooses returns the provider that the address alone implies, and why.
func (a address) chooses() (provider, rule string) {
	switch {
	case a.scheme != "":
		return providerCalled(a.scheme), "begins with " + a.scheme + ":"
	case pool.MatchString(a.text):
		return google, "is a Google CA pool"
	case strings.HasPrefix(a.text, "arn:"):
		return aws, "is an ARN of AWS"
	case strings.Contains(a.text, "googleapis.com"), strings.Contains(a.text, "meshca"):
		return google, "is an address at Google"
	}
	return citadel, "is host:port, as istiod's is"
}

// settings returns the address as settings of a provider, which was called by a name that
// may be one of Istio's. Providers unknown here take it as "address".
func (a address) settings(provider, called string) (map[string]string, error) {
	if a.text == "" {
		return nil, nil
	}
	own := providerCalled(a.scheme) == provider
	switch {
	case own && !wire.ValidName(provider):
		return nil, errors.New("write PROVIDER://ADDRESS with the name of an installed provider")
	case provider == file:
		return a.folder()
	case a.scheme == file:
		return nil, errors.New(`only the provider "file" takes a folder`)
	case provider == citadel:
		if !isHostPort(a.rest) || a.scheme != "" && !own {
			return nil, errors.New("write host:port of istiod, or file:///FOLDER, PROVIDER://ADDRESS, projects/P/locations/L/caPools/N or arn:aws:acm-pca:… for another CA")
		}
		return map[string]string{"address": a.rest}, nil
	case provider == google:
		return a.google(called)
	case provider == acme:
		return a.directory()
	case provider == aws:
		return a.amazon()
	case own:
		return map[string]string{"address": a.rest}, nil
	}
	return map[string]string{"address": a.text}, nil
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && wrong == nil && number > 0 && host != "" && !strings.ContainsAny(host, "/@ ")
}

func (a address) folder() (map[string]string, error) {
	u, err := url.Parse(a.text)
	if err != nil || a.scheme != file || u.Host != "" || !path.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New(`write file:///FOLDER, the folder of a CA, for the provider "file"`)
	}
	return map[string]string{"dir": u.Path}, nil
}

// directory returns the URL of an ACME server's directory, whose scheme is acme in place of
// https, as that would choose no provider.
func (a address) directory() (map[string]string, error) {
	u, err := url.Parse("https://" + a.rest)
	if err != nil || a.scheme != acme || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New(`write acme://HOST/PATH, the URL of the directory, for the provider "acme"`)
	}
	return map[string]string{"url": u.String()}, nil
}

func (a address) amazon() (map[string]string, error) {
	if !privateCA.MatchString(a.rest) || a.scheme != "" && a.scheme != aws {
		return nil, errors.New("write arn:aws:acm-pca:REGION:ACCOUNT:certificate-authority/ID")
	}
	return map[string]string{"ca_arn": a.rest}, nil
}

func (a address) google(called string) (map[string]string, error) {
	isPool := pool.MatchString(a.rest)
	switch {
	case !isPool && !isHostPort(a.rest), isPool && called == "googleca", !isPool && called == "googlecas", a.scheme != "" && providerCalled(a.scheme) != google:
		return nil, errors.New("write " + googleForms)
	case isPool:
		return map[string]string{"protocol": "cas", "ca_pool": a.rest}, nil
	}
	return map[string]string{"protocol": meshCA, "endpoint": a.rest}, nil
}
