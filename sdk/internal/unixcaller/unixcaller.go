// Package unixcaller connects a unix socket to a [secret.Source]: who a peer is as a caller, and
// whether the source can serve. The SDS server and the Workload API share it.
package unixcaller

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Admit returns the caller of an RPC on a socket, or the status error of the socket's own Admit.
func Admit(admit func(context.Context) (unixpeer.Peer, error)) func(context.Context) (secret.Caller, error) {
	return func(ctx context.Context) (secret.Caller, error) {
		peer, err := admit(ctx)
		if err != nil {
			return secret.Caller{}, err
		}
		return secret.Caller{ID: fmt.Sprintf("uid:%d", peer.UID), UID: peer.UID, GID: peer.GID, PID: peer.PID}, nil
	}
}

// Match applies a condition on peers to callers that [Admit] returned.
func Match(match func(unixpeer.Peer) bool) func(secret.Caller) bool {
	return func(c secret.Caller) bool { return match(unixpeer.Peer{UID: c.UID, GID: c.GID, PID: c.PID}) }
}

// Serving reports whether callers can get what they come for: a certificate, or a trust bundle where
// the source has no certificates, as in an agent of many identities. A source without a Status
// method, or without secrets of its own, serves.
func Serving(source secret.Source) bool {
	reporting, ok := source.(interface{ Status() []secret.Status })
	if !ok {
		return true
	}
	available := map[string]bool{} // by kind
	for _, s := range reporting.Status() {
		available[s.Kind] = available[s.Kind] || s.Held || s.Released // a released one comes when it is asked for
	}
	if pairs, has := available[secret.KeyPair.String()]; has {
		return pairs
	}
	return len(available) == 0 || available[secret.TrustBundle.String()]
}
