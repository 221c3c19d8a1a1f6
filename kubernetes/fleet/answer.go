package fleet

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

const (
	maxAnswer = 1 << 20 // for anything but lists and watches
	// valueSize is the memory of one JSON value besides its bytes: the three bytes of
	// "{}," can become an object with all its fields.
	valueSize = 256
	onlyJSON  = "application/json"
)

// bound limits the size of a response: client-go reads any response, and each watch
// event, fully into memory. Only JSON is accepted because punctuation tells how much
// memory it needs; a hostile server's protobuf can expand a hundredfold.
func (c *connection) bound(req *http.Request, reply *http.Response) error {
	b := &body{ReadCloser: reply.Body, what: "a response", limit: maxAnswer, structured: true, full: c.budget.exceed}
	kind, err := mediaType(reply)
	if c.budget.clients { // anybody's pod may be long
		b.limit, b.full = c.budget.limits.Response, func(error) {}
	}
	switch query, good := req.URL.Query(), reply.StatusCode == http.StatusOK; {
	case !good && strings.HasPrefix(kind, "text/"): // perhaps a proxy's error page, which is not decoded as objects
		b.structured = false
	case err != nil || kind != onlyJSON:
		_ = reply.Body.Close()
		return fmt.Errorf("API server sent content type %.256q instead of %q", reply.Header.Get("Content-Type"), onlyJSON)
	case good && query.Has("watch"):
		b.what, b.limit, b.each = "an event", c.budget.limits.Response, true
	case good && query.Has("limit"): // smaller pages may fit
		b.what, b.limit, b.full = "an object", c.budget.limits.Response, func(error) {}
	}
	reply.Body = b
	return nil
}

// mediaType returns what client-go takes the response for.
func mediaType(reply *http.Response) (string, error) {
	header := reply.Header.Get("Content-Type")
	if header == "" {
		return onlyJSON, nil
	}
	kind, _, err := mime.ParseMediaType(header)
	return kind, err
}

// body counts a response while it is read.
type body struct {
	io.ReadCloser
	what       string
	limit      int64
	structured bool        // it is JSON
	each       bool        // the limit applies to each value in turn
	full       func(error) // called when it is too long

	size            int64
	depth           int
	inText, escaped bool
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if b.count(c); b.size > b.limit {
			too := excessf("API server sent %s of more than %d bytes", b.what, b.limit)
			b.full(too)
			return 0, too
		}
	}
	return n, err
}

func (b *body) count(c byte) {
	b.size++
	switch {
	case !b.structured:
	case b.escaped:
		b.escaped = false
	case b.inText:
		b.escaped, b.inText = c == '\\', c != '"'
	case c == '"':
		b.inText = true
	case c == ',':
		b.size += valueSize
	case c == '{', c == '[':
		b.size += valueSize
		b.depth++
	case c == '}', c == ']':
		if b.depth--; b.depth == 0 && b.each {
			b.size = 0
		}
	}
}
