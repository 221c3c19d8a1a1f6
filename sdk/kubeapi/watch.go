package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// watchFor is how long a watch lasts, and up to half as long again: the next one goes on from
// where it ended. It bounds how long one is believed that shows nothing, as its connection or the API
// server's cache is stuck. Another watch from a version costs one request and no object.
const watchFor = time.Minute

// The types of an [Event].
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	// Bookmark has an object with a resourceVersion alone: a watch can go on from there.
	Bookmark = "BOOKMARK"
)

// Event is a change of an object.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"` // valid until the next event
}

// Watch calls see with each event of the collection after resourceVersion, and with bookmarks. It
// returns an error of see, nil when the API server has ended the watch, as it does after a minute
// or so, or another error. After a [*StatusError] with the status 410 the version is too old: list
// again.
func (c *Client) Watch(ctx context.Context, r Call, resourceVersion string, see func(Event) error) error {
	lasts := watchFor + rand.N(watchFor/2)
	query := url.Values{}
	maps.Copy(query, r.Query)
	query.Set("watch", "1")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", resourceVersion)
	query.Set("timeoutSeconds", strconv.Itoa(int(lasts/time.Second)))
	r.Query = query
	within, cancel := context.WithTimeout(ctx, lasts+callTimeout) // a server that is gone ends nothing
	defer cancel()
	body, err := c.stream(within, &r)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	return c.events(within, r, body, see)
}

// stream opens a watch.
func (c *Client) stream(ctx context.Context, r *Call) (io.ReadCloser, error) {
	own, err := c.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	header, _, err := c.request(*r, own)
	if err != nil {
		return nil, err
	}
	opening, stop := context.WithCancel(ctx)
	late := time.AfterFunc(callTimeout, stop) // the header comes at once, the first event may not
	resp, err := c.http.Open(opening, http.MethodGet, c.address(*r), header, nil)
	if err != nil {
		stop()
		return nil, c.unanswered(ctx, *r, err)
	}
	if resp.StatusCode == http.StatusOK {
		late.Stop()
		return stoppable{resp.Body, stop}, nil
	}
	defer stop()
	defer func() { _ = resp.Body.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxReply))
	if err != nil {
		return nil, c.unanswered(ctx, *r, err)
	}
	return nil, c.refused(*r, own, endpoint.Reply{Status: resp.StatusCode, Header: resp.Header, Body: content})
}

// stoppable is a body whose request ends with it.
type stoppable struct {
	io.ReadCloser
	stop context.CancelFunc
}

// Close ends the request, too.
func (s stoppable) Close() error {
	defer s.stop()
	return s.ReadCloser.Close()
}

func (c *Client) events(ctx context.Context, r Call, body io.Reader, see func(Event) error) error {
	bounded := &io.LimitedReader{R: body}
	for decoder := json.NewDecoder(bounded); ; {
		bounded.N = c.cfg.MaxReply
		var e Event
		switch err := decoder.Decode(&e); {
		case err == io.EOF && bounded.N > 0: //nolint:errorlint // as Decode documents
			return nil
		case err != nil && bounded.N <= 0:
			return ca.Errorf(ca.Internal, "%s sent an event of more than %d bytes for %s", c.host, c.cfg.MaxReply, r)
		case err != nil:
			return c.unanswered(ctx, r, err)
		case e.Type == "ERROR":
			return c.ended(r, e)
		}
		if err := see(e); err != nil {
			return err
		}
	}
}

// ended returns the error that an API server ends a watch with, such as 410.
func (c *Client) ended(r Call, e Event) error {
	var status said
	if json.Unmarshal(e.Object, &status) != nil {
		status = said{}
	}
	return c.refusal(r, cmp.Or(status.Code, http.StatusInternalServerError), nil, status)
}
