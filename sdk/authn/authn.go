// Package authn (experimental) identifies callers: an [Authenticator] turns a [Credential] into
// an [Identity]. [Certificates] handles client certificates; the packages jwt and tokenreview
// below handle tokens; [Ordered] tries several. Stream servers call it once per stream; it starts
// no goroutine and has neither secrets nor streams.
package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Credential is what a caller presented when its stream opened. The token never
// appears, however the value is printed, logged or marshalled.
type Credential struct {
	// Token is a bearer token, empty if there is none.
	Token ca.Token
	// Chain is the peer's chain from the TLS handshake, leaf first
	// ([crypto/tls.ConnectionState.PeerCertificates]). The handshake proved possession
	// of the leaf's key; nothing else may be verified yet.
	Chain []*x509.Certificate
	// Cluster is the cluster the caller claims. It proves nothing and only selects who
	// verifies the token. See [Clusters].
	Cluster string
	// Peer is where the caller connects from, such as its address. Callers with the same
	// one share limits, if it is set; it is not part of the credential.
	Peer string
}

// String lists the parts that are present.
func (c Credential) String() string {
	return fmt.Sprintf("token %q, %d certificates, cluster %.256q", c.Token.String(), len(c.Chain), c.Cluster)
}

// Format prints the same for every verb: fmt would reveal the token for %d.
func (c Credential) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, c.String()) // a fmt.State does not fail
}

// LogValue keeps the chain out of logs, too.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Authenticator verifies one kind of credential. It must be safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the identity that the credential proves. An error is or
	// wraps [ErrNotMine], [ErrRefused] or [ErrUnavailable]; any other counts as
	// refused. Its text is for the log: it may contain foreign text of limited length,
	// but never the token.
	Authenticate(ctx context.Context, c Credential) (Identity, error)
}

// Reasons why there is no identity.
var (
	// ErrNotMine means that there is no credential of this kind, or that another
	// authenticator must verify it, as for a token of another issuer.
	ErrNotMine = errors.New("no credential of this kind")
	// ErrRefused means that the credential is of this kind and is invalid.
	ErrRefused = errors.New("credential rejected")
	// ErrUnavailable means that the credential cannot be verified now because the
	// verifying service does not answer. The caller may retry with the same credential.
	ErrUnavailable = errors.New("credential cannot be verified at the moment")
)

// Errorf returns an error that wraps outcome: [ErrNotMine], [ErrRefused] or
// [ErrUnavailable].
func Errorf(outcome error, format string, args ...any) error {
	return fmt.Errorf("%w: %w", outcome, fmt.Errorf(format, args...))
}
