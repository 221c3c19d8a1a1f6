package kubeca

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// refusal is an answer other than 2xx, with the error that it stands for.
type refusal struct {
	status int
	err    *ca.Error
}

// Error returns the text of the error that it stands for.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap returns that error.
func (r *refusal) Unwrap() error { return r.err }

// answered reports whether err is an answer with that status.
func answered(err error, status int) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.status == status
}

// refused reads a Status of the API server.
func (s *session) refused(c call, resp *http.Response, body []byte) error {
	var said struct {
		Message string `json:"message"`
		Details struct {
			Seconds int64 `json:"retryAfterSeconds"`
		} `json:"details"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Message = "" // no Status: a proxy's page
	}
	text := ""
	if said.Message != "" {
		text = ": " + provider.CleanText(said.Message, s.token)
	}
	err := ca.Errorf(reasonFor(resp.StatusCode, said.Message), "%s answered %s with %d%s", s.url.Host, c, resp.StatusCode, text)
	if err.RetryAfter = rest.RetryAfter(resp.Header); err.RetryAfter == 0 {
		err.RetryAfter = time.Duration(min(max(said.Details.Seconds, 0), maxSeconds)) * time.Second
	}
	return &refusal{resp.StatusCode, err}
}

// maxSeconds is a day, which bounds what a server asks to wait.
const maxSeconds = 24 * 60 * 60

// reasonFor maps a status of the API server. What is not there yet may come: the types of
// cert-manager, a namespace, a ConfigMap.
func reasonFor(status int, message string) ca.Reason {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return ca.Unavailable
	case status == http.StatusForbidden && strings.Contains(message, "exceeded quota"):
		return ca.RateLimited // a ResourceQuota: requests that are done make room
	}
	reason := rest.Reason(status)
	if reason == ca.Invalid && status >= http.StatusBadRequest && message == "" {
		return ca.Unavailable // a proxy's page
	}
	return reason
}
