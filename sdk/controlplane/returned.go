package controlplane

import (
	"strconv"
	"strings"
	"time"
)

// The server carries what the client has from one watch of a stream to the next in
// "returned resources", a map it does not interpret. A value is a flag with a nonce, a
// NUL, and the version; a value without a NUL is a version the client brought from an
// earlier stream.
const (
	flagRefused = "refused"
	flagSent    = "sent " // with this nonce, not yet acknowledged
)

// receipt receives the nonce of a response. The server assigns it after taking the
// response and before asking for the returned resources, so the server's goroutine owns
// it.
type receipt struct{ nonce string }

// returned encodes what the client has once it accepts the batch sent with nonce. The
// map is new on each call because the server modifies it.
func (b batch) returned(nonce string) map[string]string {
	b.sent.nonce = nonce
	out := make(map[string]string, len(b.has))
	for name, h := range b.has {
		flag := ""
		switch {
		case h.refused:
			flag = flagRefused
		case !h.until.IsZero():
			flag = flagSent + h.sent.nonce
		}
		out[name] = flag + "\x00" + h.version
	}
	return out
}

// bring decodes what the client has of the names it requests. acked is the nonce of the
// response accepted by this request, or empty.
func (s *subscription) bring(returned map[string]string, acked string) {
	for _, name := range s.names {
		value, ok := returned[name]
		if !ok {
			continue
		}
		flag, version, ours := strings.Cut(value, "\x00")
		if !ours {
			flag, version = "", value
		}
		h := had{version: version, refused: flag == flagRefused}
		if nonce, sent := strings.CutPrefix(flag, flagSent); sent && !covers(acked, nonce) {
			h.until, h.sent = time.Now().Add(s.cache.cfg.Hold), &receipt{nonce}
		}
		s.had[name] = h
	}
}

// covers reports whether acknowledging one nonce includes the response with the other;
// servers number them consecutively.
func covers(acked, nonce string) bool {
	a, err := strconv.ParseInt(acked, 10, 64)
	if err != nil {
		return false
	}
	n, err := strconv.ParseInt(nonce, 10, 64)
	return err == nil && a >= n
}

// afresh forgets what the client has for newly subscribed names, so that they are sent
// again unless the client brought the current version.
func (s *subscription) afresh(names []string, brought map[string]string) {
	for _, name := range names {
		delete(s.had, name)
		if version, ok := brought[name]; ok {
			s.had[name] = had{version: version}
		}
	}
}
