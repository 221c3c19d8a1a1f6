package endpoint

import (
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Reason maps an authority's HTTP status other than 2xx (RFC 9110, section 15), or 202, to a reason of
// package ca; sdk/provider/rest documents the table.
func Reason(status int) ca.Reason {
	switch status {
	case http.StatusUnauthorized:
		return ca.Unauthenticated
	case http.StatusForbidden:
		return ca.Denied
	case http.StatusConflict:
		return ca.Aborted
	case http.StatusTooManyRequests, http.StatusTooEarly:
		return ca.RateLimited
	case http.StatusInternalServerError:
		return ca.Internal
	case http.StatusAccepted:
		return ca.Pending
	case http.StatusRequestTimeout:
		return ca.Unavailable
	}
	if status >= 500 {
		return ca.Unavailable
	}
	return ca.Invalid
}

// Refusal is an authority's reply that stands for an error. All texts are clean.
type Refusal struct {
	Reason ca.Reason
	Host   string // that answered
	Call   string // the method and path, without a query
	Status int
	Header http.Header
	Said   string // by the authority; may be empty
}

// Error returns it as a [*ca.Error], with the wait that the header asks for.
func (r Refusal) Error() *ca.Error {
	said := r.Said
	if r.Status/100 == 3 {
		said = "redirects are not followed; configure the URL that it redirects to" // its Location may repeat a token
	}
	if said != "" {
		said = ": " + said
	}
	failed := ca.Errorf(r.Reason, "%s answered %s with %d%s", r.Host, r.Call, r.Status, said)
	failed.RetryAfter = RetryAfter(r.Header.Get("Retry-After"), time.Now())
	return failed
}
