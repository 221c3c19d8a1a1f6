package kubeca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

const (
	callTimeout = 10 * time.Second
	maxReply    = 2 << 20 // bytes; etcd keeps no object that is larger
	maxWatch    = 8 << 20 // bytes of all events of one watch
	maxHeader   = 64 << 10
)

// session is for one call of the host: create, watch and delete share its connection. The
// caller closes it.
type session struct {
	access
	client *http.Client
	close  func()
}

// call is one request to the API server.
type call struct {
	method, path string
	query        url.Values
	body         any
}

// do makes the call and decodes the reply into out, unless that is nil. An error is a
// [*refusal] if the server answered, and a [*ca.Error] else.
func (s *session) do(ctx context.Context, c call, out any) error {
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.send(within, c)
	if err != nil {
		return s.unanswered(ctx, c, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return s.unanswered(ctx, c, err)
	case len(body) > maxReply:
		return ca.Errorf(ca.Internal, "%s answered %s with more than %d bytes", s.url.Host, c, maxReply)
	case resp.StatusCode/100 != 2:
		return s.refused(c, resp, body)
	case out == nil:
		return nil
	}
	if json.Unmarshal(body, out) != nil { // its error quotes the reply
		return ca.Errorf(ca.Internal, "%s answered %s with invalid JSON", s.url.Host, c)
	}
	return nil
}

func (s *session) send(ctx context.Context, c call) (*http.Response, error) {
	target := s.url.At(c.path)
	if len(c.query) > 0 {
		target += "?" + c.query.Encode()
	}
	var body io.Reader = http.NoBody
	if c.body != nil {
		content, err := json.Marshal(c.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "countersign-provider-kubernetes")
	if parent := provider.TraceParent(ctx); parent != "" {
		req.Header.Set("Traceparent", parent)
	}
	if c.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token.Reveal())
	}
	return s.client.Do(req)
}

// String is the method and path, for messages.
func (c call) String() string { return c.method + " " + c.path }

// unanswered is the error of a call without a reply. ctx is the host's.
func (s *session) unanswered(ctx context.Context, c call, err error) error {
	if ctx.Err() != nil {
		return ca.Errorf(ca.ReasonFor(ctx.Err()), "%s did not answer %s in time", s.url.Host, c)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return ca.Errorf(ca.Unavailable, "%s cannot be reached: %s", s.url.Host, provider.CleanText(err.Error(), s.token))
}

// event is a line of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// errDeleted ends the wait for an object that another client deleted.
var errDeleted = errors.New("deleted")

// watch calls see with each later version of an object until that returns true. It returns
// [errDeleted] when the object is deleted, and another error when the server ends the watch or
// cannot watch: the caller then asks.
func (s *session) watch(ctx context.Context, collection string, from object, see func(object) bool) error {
	resp, err := s.send(ctx, call{method: http.MethodGet, path: collection, query: url.Values{
		"watch": {"1"}, "fieldSelector": {"metadata.name=" + from.Metadata.Name}, "resourceVersion": {from.Metadata.ResourceVersion},
	}})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	for events := json.NewDecoder(io.LimitReader(resp.Body, maxWatch)); ; {
		var e event
		if err := events.Decode(&e); err != nil {
			return err
		}
		// A server that does not know the selector sends all objects.
		if same := e.Object.Metadata.UID == from.Metadata.UID; !same && e.Type != "ERROR" {
			continue
		}
		switch e.Type {
		case "ERROR": // such as 410: the version is too old
			return errors.New("the server ended the watch")
		case "DELETED":
			return errDeleted
		case "ADDED", "MODIFIED":
			if see(e.Object) {
				return nil
			}
		}
	}
}
