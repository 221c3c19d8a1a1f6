package istioca

import (
	"cmp"
	"context"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// record records a refusal of a caller who is known, unless the issuer has. What strangers do
// is in the log alone.
func (s *Server) record(ctx context.Context, f *fault) {
	if f.who == nil || f.recorded {
		return
	}
	reasons := map[Result]ca.Reason{Denied: ca.Denied, Copied: ca.Denied, Malformed: ca.Invalid, OverLimit: ca.RateLimited, OverOwnLimit: ca.RateLimited}
	if reason, refused := reasons[f.result]; refused {
		s.cfg.Issuer.Refuse(ctx, ra.Request{Subject: f.who.Subject, Door: cmp.Or(f.door, doorName)}, ca.Errorf(reason, "%s", f.inFull()))
	}
}

// inFull is the client's message with its cause.
func (f *fault) inFull() string {
	if f.cause == nil {
		return f.message
	}
	return f.message + ": " + text.Redact(f.cause.Error(), f.token)
}
