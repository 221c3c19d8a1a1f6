package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	meshapi "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/trustbundle"
)

// poll is short in place of istiod's 30 minutes.
const poll = 500 * time.Millisecond

// bundle reads the endpoint at BUNDLE_URL as istiod reads caCertificates.spiffeBundleUrl, by the roots
// of the system. A line of JSON has the trust anchors, in PEM, each time they change.
func bundle(ctx context.Context) error {
	b := trustbundle.NewTrustBundle(nil, defaults{})
	b.UpdateCb(func() {
		if err := json.NewEncoder(os.Stdout).Encode(map[string][]string{"anchors": b.GetTrustBundle()}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	entry := &meshapi.MeshConfig_CertificateData{CertificateData: &meshapi.MeshConfig_CertificateData_SpiffeBundleUrl{SpiffeBundleUrl: os.Getenv("BUNDLE_URL")}}
	if err := b.AddMeshConfigUpdate(&meshapi.MeshConfig{CaCertificates: []*meshapi.MeshConfig_CertificateData{entry}}); err != nil {
		return err
	}
	b.ProcessRemoteTrustAnchors(ctx.Done(), poll)
	return nil
}
