package strangers

import (
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// MaxToken bounds a token, in bytes. A projected Kubernetes token takes 1 to 2 KiB.
const MaxToken = 16 << 10

const scheme = "bearer "

// Bearer returns the bearer token in the values of the metadata authorization, empty if
// there is none, or what is wrong with it.
func Bearer(values []string) (token ca.Token, fault string) {
	switch len(values) {
	case 0:
		return "", ""
	case 1:
	default:
		return "", "the metadata authorization is there more than once"
	}
	value := values[0]
	if len(value) <= len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", "the metadata authorization is not of the form: Bearer <token>"
	}
	value = value[len(scheme):]
	if len(value) > MaxToken || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", "the token is too long or has what no token has"
	}
	return ca.Token(value), ""
}
