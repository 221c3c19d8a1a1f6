package status

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// clean makes foreign text safe to show: at most 256 bytes, with unprintable characters
// escaped.
func clean(text string) string { return wire.CleanText(text, "") }

// maxList is how many entries of a list are shown.
const maxList = 20

func cleanAll(list []string) string {
	var out []string
	for _, text := range list[:min(maxList, len(list))] {
		out = append(out, clean(text))
	}
	if more := len(list) - maxList; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// short is the beginning of a fingerprint, enough to recognize it.
func short(s string) string { return s[:min(16, len(s))] }

// badge is a state in words with its grade.
type badge struct {
	Words string `json:"words"`
	Grade string `json:"grade"`
}

// The grades.
const good, fair, bad = "good", "fair", "bad"

// BadgeOf returns the state of a secret.
func (r Report) BadgeOf(s secret.Status) badge {
	switch {
	case !s.ExpiredSince.IsZero():
		return badge{"expired", "bad"}
	case s.Released:
		return badge{"idle, renewed on request", "good"}
	case s.Revocation != nil && s.Item != nil && !s.Held:
		return badge{"not served: it has no revocation list", "bad"}
	case !s.Held && s.Pending != nil:
		return badge{"not held: the CA has not decided yet", "fair"}
	case !s.Held && s.Failure != nil:
		return badge{"not held: requests are failing", "bad"}
	case !s.Held:
		return badge{"not held yet", "fair"}
	case s.Failure != nil:
		return badge{"held; renewal is failing", "fair"}
	case s.Pending != nil:
		return badge{"held; the CA has not decided on the renewal yet", "fair"}
	case s.Revocation != nil && len(s.Revocation.Without) > 0:
		return badge{"held; a revocation list is missing or expired", "bad"}
	case s.Revocation != nil && s.Revocation.Failure != nil:
		return badge{"held; a revocation list is invalid", "fair"}
	case s.Missing != "":
		return badge{"held; a root is missing", "fair"}
	}
	return badge{"held", "good"}
}

// Summary is the overall state in one sentence.
func (r Report) Summary() badge {
	held := 0
	for _, s := range r.Secrets {
		if s.Held {
			held++
		}
	}
	whole := badge{"All secrets are held.", "good"}
	if held < len(r.Secrets) {
		whole = badge{fmt.Sprintf("%d of %d secrets held.", held, len(r.Secrets)), "bad"}
	}
	ready := 0
	for _, p := range r.Providers {
		if p.State == "ready" {
			ready++
		}
	}
	if ready < len(r.Providers) {
		whole.Words += fmt.Sprintf(" %d of %d providers ready.", ready, len(r.Providers))
		whole.Grade = worse(whole.Grade, "fair")
	}
	for _, t := range r.problems() {
		whole.Words += " " + t.Words
		whole.Grade = worse(whole.Grade, t.Grade)
	}
	for _, s := range r.Secrets {
		whole.Grade = worse(whole.Grade, r.BadgeOf(s).Grade)
	}
	return whole
}

// WithHeadline returns the report with its [Report.Summary].
func (r Report) WithHeadline() Report {
	whole := r.Summary()
	r.Headline = &whole
	return r
}

func worse(a, b string) string {
	for _, grade := range []string{"bad", "fair"} {
		if a == grade || b == grade {
			return grade
		}
	}
	return "good"
}
