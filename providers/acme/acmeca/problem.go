package acmeca

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// afterFailure is how long to leave a name alone that the CA could not verify: public CAs
// count failed validations, and allow a few in an hour.
const afterFailure = time.Minute

// problem is an error of the server (RFC 8555, section 6.7).
type problem struct {
	Type        string    `json:"type"`
	Detail      string    `json:"detail"`
	Instance    string    `json:"instance"`
	Subproblems []problem `json:"subproblems"`
	Identifier  *name     `json:"identifier"`
	Status      int       `json:"status"`
}

const (
	namespace = "urn:ietf:params:acme:error:"
	// maxSub bounds what is repeated of a problem's parts.
	maxSub = 3
)

// kinds are the reasons of the registered problems. What is not here goes by the status.
var kinds = map[string]ca.Reason{
	"accountDoesNotExist": ca.Denied, "badCSR": ca.Invalid, "badPublicKey": ca.Invalid, "badSignatureAlgorithm": ca.Invalid,
	"badNonce": ca.Unavailable, "caa": ca.Denied, "connection": ca.Unavailable, "dns": ca.Unavailable, "tls": ca.Unavailable,
	"incorrectResponse": ca.Unavailable, "externalAccountRequired": ca.Denied, "invalidContact": ca.Invalid, "invalidProfile": ca.Invalid,
	"malformed": ca.Invalid, "orderNotReady": ca.Aborted, "rateLimited": ca.RateLimited, "rejectedIdentifier": ca.Denied,
	"serverInternal": ca.Unavailable, "unauthorized": ca.Denied, "unsupportedContact": ca.Invalid, "unsupportedIdentifier": ca.Denied,
	"userActionRequired": ca.Denied, "alreadyReplaced": ca.Aborted,
}

// advice is what the operator can do about a problem.
var advice = map[string]string{
	"externalAccountRequired": "set eab to what the CA gave you",
	"userActionRequired":      "visit the URL, with the account's owner",
	"invalidContact":          "check contact", "unsupportedContact": "check contact",
	"connection":        "the CA must reach the challenge's port of this name",
	"incorrectResponse": "another server than this provider answered: have it forward the challenge, or check where the name leads",
	"caa":               "a CAA record of the domain forbids this CA",
}

// kind is the last part of a registered type, or "".
func (p problem) kind() string {
	kind, ok := strings.CutPrefix(p.Type, namespace)
	if !ok {
		return ""
	}
	if kind == "compound" && len(p.Subproblems) > 0 {
		return problem{Type: p.Subproblems[0].Type}.kind()
	}
	return kind
}

// reason is that of the kind, or of the status. A 500 without a kind is a load balancer's page
// as a rule, and a 4xx without a problem document a proxy's: neither ends an order.
func (p problem) reason(status int) ca.Reason {
	if reason, ok := kinds[p.kind()]; ok {
		return reason
	}
	reason := rest.Reason(status)
	if page := p.Type == "" && p.Detail == ""; reason == ca.Internal || reason == ca.Invalid && status >= http.StatusBadRequest && page {
		return ca.Unavailable
	}
	return reason
}

// words describe it.
func (p problem) words() string {
	parts := []string{p.Detail}
	if kind := p.kind(); kind != "" {
		parts[0] = kind + ": " + p.Detail
	}
	for _, sub := range p.Subproblems[:min(len(p.Subproblems), maxSub)] {
		if sub.Identifier != nil {
			parts = append(parts, sub.Identifier.Value+": "+sub.Detail)
		}
	}
	if p.Instance != "" && p.kind() == "userActionRequired" {
		parts = append(parts, p.Instance)
	}
	said := provider.CleanText(strings.Join(parts, "; "))
	if hint := advice[p.kind()]; hint != "" {
		said += " (" + hint + ")"
	}
	return said
}

// failure is an error reply. Its kind decides whether this package can recover from it.
type failure struct {
	cause *ca.Error
	kind  string
	final bool // the order has come to nothing
}

func (f failure) Error() string { return f.cause.Error() }

// Unwrap returns the error with the reason.
func (f failure) Unwrap() error { return f.cause }

// refused returns the error of a reply with another status than 2xx.
func refused(host, call string, status int, header http.Header, body []byte) failure {
	var p problem
	_ = json.Unmarshal(body, &p) // anything else goes by its status
	said := p.words()
	if status/100 == 3 {
		said = "redirects are not followed"
	}
	err := ca.Errorf(p.reason(status), "%s answered %s with %d: %s", host, call, status, said)
	err.RetryAfter = rest.RetryAfter(header)
	return failure{cause: err, kind: p.kind()}
}

// failed returns the error of an order or a challenge that has come to nothing.
func failed(what string, p *problem) error {
	if p == nil {
		return failure{cause: ca.Errorf(ca.Unavailable, "%s has failed, and the CA does not say why", what), final: true}
	}
	reason, said := p.reason(p.Status), p.words()
	if p.kind() == "unauthorized" { // not this account: the answer to the challenge, such as a page with 404
		reason, said = ca.Unavailable, said+" ("+advice["incorrectResponse"]+")"
	}
	err := ca.Errorf(reason, "%s has failed: %s", what, said)
	if err.Reason == ca.Unavailable {
		err.RetryAfter = afterFailure
	}
	return failure{err, p.kind(), true}
}
