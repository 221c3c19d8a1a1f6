// Package monitoring serves health and metrics to other machines: [Listen] takes
// an address, over TLS where that is wanted, [Clients] selects the accepted certificates,
// [Guarded] demands a bearer token, and [Merged] adds the metrics of other programs of this
// machine to the agent's own. Nothing else of the
// agent is reachable here: no page, no secret, no configuration.
package monitoring

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/netutil"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// maxConnections limits the open connections of an address: strangers may reach it.
const maxConnections = 64

// maxToken limits the size of a token file.
const maxToken = 16 << 10

// Listen takes an address, host:port. Until Show of the result, /healthz is well and /readyz
// is not ready. A nil certificate means plain HTTP; an empty address no listener.
func Listen(address string, certificate *operatorpage.Certificate, log *slog.Logger) (*operatorpage.Page, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if certificate != nil {
		listener = certificate.Listen(listener)
	}
	return operatorpage.Serve(listener, "status page", log), nil
}

// Guarded serves next only to those who present the token in a file, which is read each time.
// An empty path guards nothing.
func Guarded(tokenFile string, next http.Handler) http.Handler {
	if tokenFile == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := ReadToken(tokenFile)
		if err != nil { // its text has the path
			operatorpage.Say(http.StatusServiceUnavailable, "the token to compare with cannot be read")(w, r)
			return
		}
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || !same(token, given) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			operatorpage.Say(http.StatusUnauthorized, "a bearer token is required")(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ReadToken reads the token in a file.
func ReadToken(path string) (string, error) {
	content, err := safefile.Read(path, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", errors.New(path + " is empty")
	}
	return token, nil
}

// same compares in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
