// Package guard looks, in each cluster, for what makes a registration authority dangerous there:
//
//   - An authority that the API server takes clients' certificates of could sign an administrator.
//     [ClientCA] knows the API server's client CAs, and [Authorities] keeps an engine from such
//     an authority.
//   - Whoever may create PodCertificateRequests can ask for any pod's certificate, as a request
//     does not say who made it. [Admission] looks for the ValidatingAdmissionPolicy that lets
//     nodes alone create them, and warns while there is none.
package guard

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

const (
	// interval is the time between looks. Both are rarely changed.
	interval = 5 * time.Minute
	// callTimeout limits each call to the API server.
	callTimeout = 10 * time.Second
)

// faults bounds the pauses after a failed look.
var faults = rotation.Row{First: time.Second, Most: time.Minute}

// repeat calls look until ctx ends: each interval, and sooner while it fails.
func repeat(ctx context.Context, look func(context.Context) error) {
	var waits rotation.Waits
	for ctx.Err() == nil {
		if look(ctx) != nil {
			signing.Sleep(ctx, waits.Next(faults))
			continue
		}
		waits.Reset()
		signing.Sleep(ctx, interval+rand.N(interval/10))
	}
}
