package tokenreview

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/token"
)

const (
	path       = "/apis/authentication.k8s.io/v1/tokenreviews"
	apiVersion = "authentication.k8s.io/v1"
	kind       = "TokenReview"
	// maxReply is generous because the API server returns the token.
	maxReply = 256 << 10

	extraPrefix = "authentication.kubernetes.io/"
)

// question and answer are the two halves of a TokenReview.
type question struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences"`
	} `json:"spec"`
}

type answer struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     struct {
		Authenticated bool     `json:"authenticated"`
		User          user     `json:"user"`
		Audiences     []string `json:"audiences"`
		Error         string   `json:"error"`
	} `json:"status"`
}

type user struct {
	Username string              `json:"username"`
	UID      string              `json:"uid"`
	Groups   []string            `json:"groups"`
	Extra    map[string][]string `json:"extra"`
}

// review sends a TokenReview. Its errors contain neither token.
func (r *Reviewer) review(ctx context.Context, shown ca.Token) (authn.Identity, error) {
	q := question{APIVersion: apiVersion, Kind: kind}
	q.Spec.Token, q.Spec.Audiences = shown.Reveal(), r.cfg.Audiences
	var said answer
	err := r.client.Do(ctx, kubeapi.Call{Method: http.MethodPost, Path: path, Body: q, Hide: []ca.Token{shown}}, &said)
	if err != nil {
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "%s", faultIn(err))
	}
	if said.APIVersion != apiVersion || said.Kind != kind {
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "the API server returned a %s instead of a TokenReview",
			text.Redact(fmt.Sprintf("%.64q of %.64q", said.Kind, said.APIVersion), shown))
	}
	return r.identity(said, shown)
}

// faultIn describes a failed call. An error status concerns us, not the token: 401 means that our
// own credential is not accepted, 403 that it may not ask.
func faultIn(err error) string {
	switch {
	case kubeapi.Answered(err, http.StatusUnauthorized):
		return "the API server does not accept our own credential: " + err.Error()
	case kubeapi.Answered(err, http.StatusForbidden):
		return "our own credential needs the right to create tokenreviews: " + err.Error()
	}
	return "the API server did not review the token: " + err.Error()
}

// rejection matches the errors of a TokenReview that are about the token (k8s.io/kubernetes,
// pkg/serviceaccount, and k8s.io/apiserver, pkg/authentication/request/bearertoken). Any other may be
// about what the API server needs for its answer: its storage, a webhook, an issuer's keys.
var rejection = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)invalid bearer token|go-jose|token has been invalidated|token has expired|token is expired|` +
		`token is not valid yet|token is issued in the future|could not be validated|is invalid for the target audiences|` +
		`^invalid signature$|^no keys found$|^token issuer "[^"]*" is invalid$|^\w+ claim is (missing|invalid)$|` +
		`^token does not match server's copy$|has been marked invalid\.|^or remove the '[^']*' label from the secret|` +
		`UID \(.*\) does not match (service account \w+ ref )?claim|^service ?account \S+ has been deleted$|^serviceaccounts "[^"]*" not found$`)
})

// rejects reports whether all parts of a status.error are about the token; several are in brackets.
// None is a rejection, too.
func rejects(fault string) bool {
	if fault == "" {
		return true
	}
	for part := range strings.SplitSeq(strings.Trim(fault, "[]"), ", ") {
		if !rejection().MatchString(part) {
			return false
		}
	}
	return true
}

// identity checks a positive answer against what was asked.
func (r *Reviewer) identity(said answer, shown ca.Token) (authn.Identity, error) {
	status := said.Status
	switch {
	case !status.Authenticated && !rejects(status.Error):
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "the API server failed to review the token: %s", text.Redact(status.Error, shown))
	case !status.Authenticated:
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the API server rejected the token: %s", text.Redact(status.Error, shown))
	}
	// An API server that does not support audiences omits them and has then accepted a
	// token for any audience.
	if !slices.ContainsFunc(status.Audiences, func(a string) bool { return slices.Contains(r.cfg.Audiences, a) }) {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the token's audiences are [%s], must include one of %q", text.Redact(strings.Join(status.Audiences, " "), shown), r.cfg.Audiences)
	}
	id, err := r.template.Identity(status.User.Username)
	if err == nil {
		err = status.User.checkGroups(id.Namespace)
	}
	if err != nil {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the token's user: %s", text.Redact(err.Error(), shown))
	}
	r.describe(&id, status.User)
	id.Expiry = token.Expiry(shown) // the claim is as trustworthy as the token
	return id, nil
}

// checkGroups requires the groups of every service account: other authenticators of the
// API server may choose user names freely.
func (u user) checkGroups(namespace string) error {
	for _, group := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		if !slices.Contains(u.Groups, group) {
			return fmt.Errorf("%.256q is not in the group %q, so it is not a service account", u.Username, group)
		}
	}
	return nil
}

func (r *Reviewer) describe(id *authn.Identity, u user) {
	id.Kind, id.Issuer, id.Cluster = authn.ByTokenReview, r.cfg.URL, r.cfg.Cluster
	id.ServiceAccountUID = u.UID
	id.Pod, id.PodUID, id.Node = u.extra("pod-name"), u.extra("pod-uid"), u.extra("node-name")
}

func (u user) extra(name string) string {
	if values := u.Extra[extraPrefix+name]; len(values) == 1 {
		return values[0]
	}
	return ""
}
