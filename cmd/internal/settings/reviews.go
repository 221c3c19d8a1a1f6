package settings

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
)

// ReviewsOfAddress returns how many tokens from one address are reviewed at once by an API server:
// the share that an address has of all authentications, and one at least.
func ReviewsOfAddress(ofAddress, all uint32) int {
	share := uint64(tokenreview.MaxInFlight) * uint64(ofAddress) / uint64(max(all, 1))
	return int(min(max(share, 1), tokenreview.MaxInFlight)) // #nosec G115 -- bounded
}

// GatewayNote returns what the limits in a section of the configuration mean for callers of other
// clusters, which often share one address.
func GatewayNote(section string, authentications, connections uint32) string {
	return fmt.Sprintf("%s.authentications_of_address is %d, connections_of_address %d: proxies that reach this service through a gateway share one address; set both above what may start together",
		section, authentications, connections)
}
