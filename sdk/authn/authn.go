// Package authn tells who a caller is: an [Authenticator] makes an [Identity] of a
// [Credential]. [Certificates] knows callers by client certificates; the packages
// jwt and tokenreview below know them by tokens; [Ordered] asks several. It knows
// no secrets and serves no streams: whoever does asks here once for each stream.
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

// Credential is what a caller showed when its stream opened. However it is printed,
// logged or marshalled, the token does not appear.
type Credential struct {
	// Token is a bearer token, empty where there is none.
	Token ca.Token
	// Chain is what the TLS handshake got of the peer, leaf first
	// ([crypto/tls.ConnectionState.PeerCertificates]). The handshake has proved that
	// the peer holds the leaf's key; nothing else of it needs to be verified yet.
	Chain []*x509.Certificate
	// Cluster is the cluster that the caller says it is in. It proves nothing: it
	// only chooses who is asked about the token. See [Clusters].
	Cluster string
}

// String tells what there is of each.
func (c Credential) String() string {
	return fmt.Sprintf("token %q, %d certificates, cluster %.256q", c.Token.String(), len(c.Chain), c.Cluster)
}

// Format prints the same for every verb: fmt itself would show the token for %d.
func (c Credential) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, c.String()) // a fmt.State does not fail
}

// LogValue keeps the chain out of a log, too.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Authenticator verifies one kind of credential. Any number of goroutines may call
// it at once.
type Authenticator interface {
	// Authenticate returns who has shown the credential. An error is (or wraps)
	// [ErrNotMine], [ErrRefused] or [ErrUnavailable]; one that is none of them counts
	// as refused. Its text is for the log: it may hold foreign text, which is bounded,
	// and never the token.
	Authenticate(ctx context.Context, c Credential) (Identity, error)
}

// Why there is no identity.
var (
	// ErrNotMine: there is no credential of this kind, or it is for somebody else to
	// verify, as the token of another issuer.
	ErrNotMine = errors.New("no credential of this kind")
	// ErrRefused: the credential is of this kind and is not good.
	ErrRefused = errors.New("the credential is refused")
	// ErrUnavailable: whether it is good cannot be told now, as whoever knows does not
	// answer. The caller may come again with the same credential.
	ErrUnavailable = errors.New("the credential cannot be verified now")
)

// Errorf returns an error of that outcome: [ErrNotMine], [ErrRefused] or
// [ErrUnavailable].
func Errorf(outcome error, format string, args ...any) error {
	return fmt.Errorf("%w: %w", outcome, fmt.Errorf(format, args...))
}
