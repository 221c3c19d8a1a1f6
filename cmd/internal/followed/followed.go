// Package followed reads the settings of a SPIFFE bundle endpoint that a program follows: see
// [Endpoint].
package followed

import (
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const maxInitialRoots = 4 << 20 // bytes

// Endpoint returns the endpoint with the roots of initial_file.
func Endpoint(f config.Followed) (federation.Endpoint, error) {
	e := federation.Endpoint{TrustDomain: f.TrustDomain, URL: f.URL, ServerID: f.ServerID, RootFile: f.RootFile}
	if f.InitialFile == "" {
		return e, nil
	}
	content, err := safefile.Read(f.InitialFile, maxInitialRoots)
	if err == nil {
		e.Initial, err = pki.ParseBundle(content)
	}
	if err != nil {
		return e, fmt.Errorf("initial_file is %q: %w", f.InitialFile, err)
	}
	return e, nil
}
