package fleet

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	introduceTimeout = 10 * time.Second
	introduceLast    = 30 * time.Second // the longest pause between two attempts
)

// introduce asks the API server who we are until it accepts our credential. Any account may
// ask that, by the cluster role system:basic-user. It returns false if ctx ends first.
func (c *Cluster) introduce(ctx context.Context) bool {
	for pause := time.Second; ; pause = min(2*pause, introduceLast) {
		err := c.whoAmI(ctx)
		c.conn.health.note("credential", err)
		if err == nil {
			c.accepted.Store(true)
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

func (c *Cluster) whoAmI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	_, err := c.conn.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}
