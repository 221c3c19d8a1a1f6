package controlplane

import (
	"strconv"
	"strings"
	"time"
)

// What the client has goes from one watch of a stream to the next as its "returned
// resources", which the server keeps and does not look into. A value is a flag with a
// nonce, a NUL, and the version; one without a NUL is a version that the client brought
// from an earlier stream.
const (
	flagRefused = "refused"
	flagSent    = "sent " // with this nonce, and was not acknowledged
)

// receipt learns the nonce of a response. The server gives it one after it has taken
// the response and before it asks for the returned resources, so it belongs to the
// server's goroutine.
type receipt struct{ nonce string }

// returned writes what the client has once it has the batch, which went out with the
// nonce. The server changes the map that it is given: it is a new one each time.
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

// bring reads what the client has of the names that it asks for. acked is the nonce of
// a response that it accepted with this request, or empty.
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

// covers tells whether who acknowledged one nonce has the response with the other:
// the servers count.
func covers(acked, nonce string) bool {
	a, err := strconv.ParseInt(acked, 10, 64)
	if err != nil {
		return false
	}
	n, err := strconv.ParseInt(nonce, 10, 64)
	return err == nil && a >= n
}

// afresh forgets what the client has of names that it has just subscribed to: they are
// told again, unless it has brought the very version along.
func (s *subscription) afresh(names []string, brought map[string]string) {
	for _, name := range names {
		delete(s.had, name)
		if version, ok := brought[name]; ok {
			s.had[name] = had{version: version}
		}
	}
}
