package fleet

import (
	"context"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// introductions bounds the pauses between two attempts to introduce ourselves.
var introductions = rotation.Row{First: time.Second, Most: 30 * time.Second}

const (
	introduceTimeout = 10 * time.Second
	// recheck is how often an API server is asked whether it still accepts our credential. It
	// does not end the watches of an account that is deleted, and caches its answer for 10 s.
	recheck = 25 * time.Second
)

// introduce asks the API server who we are until it accepts our credential. Any account may
// ask that, by the cluster role system:basic-user. It returns false if ctx ends first.
func (c *Cluster) introduce(ctx context.Context) bool {
	for waits := (rotation.Waits{}); ; {
		err := c.whoAmI(ctx)
		c.conn.health.note("credential", err)
		if err == nil {
			c.accepted.Store(true)
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(waits.Next(introductions)):
		}
	}
}

func (c *Cluster) whoAmI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	_, err := c.conn.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// recheck asks for something that any valid credential may read; the connection notes the answer.
// A request that has no answer in time notes nothing.
func (c *Cluster) recheck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	_ = c.conn.client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// every calls f at intervals, of which the first is shortened at random, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	timer := time.NewTimer(interval - rand.N(interval/2)) // #nosec G404 -- spreads the calls of many clusters
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			f(ctx)
			timer.Reset(interval)
		case <-ctx.Done():
			return
		}
	}
}
