package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/internal/transport"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// metadataHost is an address because a name could be answered by any DNS server.
	metadataHost    = "169.254.169.254"
	metadataFlavor  = "Metadata-Flavor"
	metadataTimeout = 5 * time.Second
)

// Metadata is a source that asks the Compute Engine metadata server for an identity token
// of the VM's service account
// (cloud.google.com/compute/docs/instances/verifying-instance-identity). It uses plain
// HTTP, which does not leave the machine.
type Metadata struct {
	// Audience is the audience of the token. Required.
	Audience string
	// Account is the service account. Default: default.
	Account string
	// Host is the server as host or host:port. Default: 169.254.169.254.
	Host string
	// Timeout limits a call. Default: 5 seconds.
	Timeout time.Duration
}

// Token asks the server, which does its own caching. The error's reason is
// [ca.Unavailable] or [ca.Deadline].
func (m Metadata) Token(ctx context.Context) (ca.Bearer, error) {
	timeout := cmp.Or(m.Timeout, metadataTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	content, err := m.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return ca.Bearer{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "%s gave no token within %s", m, timeout)
	case err != nil:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s: %w", m, err)
	}
	return parse(content, m.String())
}

func (m Metadata) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(metadataFlavor, "Google")
	client := http.Client{Transport: transport.Local(nil), CheckRedirect: refuseRedirect}
	reply, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	switch {
	case reply.Header.Get(metadataFlavor) != "Google":
		return nil, errors.New("not a metadata server (no Metadata-Flavor: Google)")
	case reply.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answered with %d; has the machine a service account?", reply.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(reply.Body, maxToken+1))
	if len(content) > maxToken {
		err = fmt.Errorf("it answered with more than %d bytes", maxToken)
	}
	return content, err
}

func (m Metadata) url() string {
	account := cmp.Or(m.Account, "default")
	return (&url.URL{
		Scheme: "http", Host: m.host(), Path: "/computeMetadata/v1/instance/service-accounts/" + account + "/identity",
		RawQuery: url.Values{"audience": {m.Audience}, "format": {"full"}}.Encode(),
	}).String()
}

func (m Metadata) host() string {
	return cmp.Or(m.Host, metadataHost)
}

func refuseRedirect(*http.Request, []*http.Request) error {
	return errors.New("it redirects, which a metadata server does not")
}

func (m Metadata) String() string { return "metadata server " + m.host() }
