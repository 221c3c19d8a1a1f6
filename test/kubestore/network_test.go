package kubestore_test

import (
	"net/http"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// network is between a machine and the API server.
type network struct {
	of *machine
	at *kubetest.Fake
}

// RoundTrip implements [http.RoundTripper].
func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case n.of.dead.Load():
		<-r.Context().Done()
		return nil, r.Context().Err()
	case n.of.away.Load():
		return nil, errAway
	}
	return n.at.RoundTrip(r)
}
