package istioca

import (
	"context"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Recorder is what an [Issuer] may be as well, as an [ra.Engine] is: it keeps the server's own
// refusals where it keeps its own.
type Recorder interface {
	Refuse(ctx context.Context, req ra.Request, err error)
}

// record records a refusal of a caller who is known, unless the issuer has. What strangers do
// is in the log alone.
func (s *Server) record(ctx context.Context, f *fault) {
	to, ok := s.cfg.Issuer.(Recorder)
	if !ok || f.who == nil || f.recorded {
		return
	}
	switch f.result {
	case Denied, Copied:
		to.Refuse(ctx, ra.Request{Subject: f.who.Subject, Door: doorName}, ca.Errorf(ca.Denied, "%s", f.inFull()))
	case Malformed:
		to.Refuse(ctx, ra.Request{Subject: f.who.Subject, Door: doorName}, ca.Errorf(ca.Invalid, "%s", f.inFull()))
	}
}

// inFull is what the client was told, and what it was not.
func (f *fault) inFull() string {
	if f.cause == nil {
		return f.message
	}
	return f.message + ": " + text.Redact(f.cause.Error(), f.token)
}
