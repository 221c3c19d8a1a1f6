package monitoring

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// Clients accepts verified clients with one of the names, SPIFFE IDs and DNS names. Without
// names, each verified one is accepted.
func Clients(names []string) tlsconfig.Authorizer {
	var known []tlsconfig.Authorizer
	for _, name := range names {
		if strings.HasPrefix(name, "spiffe://") {
			known = append(known, tlsconfig.SPIFFEID(name))
		} else {
			known = append(known, tlsconfig.DNSName(name))
		}
	}
	return func(client tlsconfig.Peer) error {
		for _, accepts := range known {
			if accepts(client) == nil {
				return nil
			}
		}
		if len(known) == 0 {
			return nil
		}
		return &tlsconfig.Error{Reason: tlsconfig.ErrOtherName, Expected: "one of status.metrics_client_names", Seen: fmt.Sprintf("%.256q", client.Leaf().Subject)}
	}
}
