package settings

import "github.com/countersign-dev/countersign/sdk/authn/tokenreview"

// ReviewsOfAddress returns how many tokens from one address are reviewed at once by an API server:
// the share that an address has of all authentications, and one at least.
func ReviewsOfAddress(ofAddress, all uint32) int {
	share := uint64(tokenreview.MaxInFlight) * uint64(ofAddress) / uint64(max(all, 1))
	return int(min(max(share, 1), tokenreview.MaxInFlight)) // #nosec G115 -- bounded
}
