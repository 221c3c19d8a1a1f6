package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/transport"
)

const (
	patience = 5 * time.Second // for an answer
	maxReply = 8 << 20         // bytes
)

// source is a status page.
type source struct {
	address string
	host    string
	client  *http.Client
	path    string // the last that was there
}

func newSource(address string) (*source, error) {
	at, err := unixsocket.ParseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("the address is %.256q: %w", address, err)
	}
	s := &source{address: address, host: address, path: "/status"}
	if at.Network() == "unix" {
		s.host = "localhost"
	}
	s.client = &http.Client{
		Timeout:   patience,
		Transport: transport.Local(at),
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it redirects, which a status page does not")
		},
	}
	return s, nil
}

// answer is what a status page answered.
type answer struct {
	at     time.Time
	report report
	raw    json.RawMessage // nil after an error
	err    error
}

// ask looks once. The agent has its status at /status, the services at /status.json.
func (s *source) ask(ctx context.Context) answer {
	a := answer{}
	a.raw, a.err = s.get(ctx, s.path)
	if errors.Is(a.err, errNotThere) {
		s.path = map[string]string{"/status": "/status.json", "/status.json": "/status"}[s.path]
		a.raw, a.err = s.get(ctx, s.path)
	}
	if a.err == nil {
		if a.err = json.Unmarshal(a.raw, &a.report); a.err != nil {
			a.raw, a.err = nil, fmt.Errorf("its status cannot be read: %w", a.err)
		}
	}
	a.at = time.Now()
	return a
}

var errNotThere = errors.New("it has no status: starting, or not an agent")

func (s *source) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	reply, err := s.client.Do(req)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the URL, which adds nothing
		}
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	switch {
	case reply.StatusCode == http.StatusNotFound:
		return nil, errNotThere
	case reply.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %d", reply.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxReply:
		return nil, fmt.Errorf("its status has more than %d bytes", maxReply)
	}
	return body, nil
}
