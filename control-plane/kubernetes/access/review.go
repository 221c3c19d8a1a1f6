package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/text"
)

// failureEvery limits how often an unreachable API server is logged.
const failureEvery = time.Minute

// ask starts a review unless one is in progress.
func (a *Access) ask(e *entry) {
	if a.closed || e.cancel != nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, 3*a.cfg.Deadline)
	e.cancel = cancel
	desk, round := a.desks[e.subject.Cluster], e.round
	a.flights.Go(func() {
		defer cancel()
		a.fly(ctx, desk, e, round)
	})
}

// fly runs one review, shared by all waiting callers.
func (a *Access) fly(ctx context.Context, d *desk, e *entry, round int) {
	says, asked, err := a.review(ctx, d.slots, e.subject)
	for w := range a.land(d, e, round, says, asked, err) {
		if !w.gone.Load() {
			w.notify()
		}
	}
}

// land records the result of a review and returns the watches to notify. It ignores
// answers from before the cluster was replaced.
func (a *Access) land(d *desk, e *entry, round int, says answer, asked time.Time, err error) map[*watch]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.round != round {
		return nil
	}
	e.cancel = nil
	now := a.cfg.Now()
	e.settle(&a.cfg, says, err, asked, now)
	a.tally(d, e, says, err, now)
	a.arm(e)
	return e.concerned()
}

func (a *Access) tally(d *desk, e *entry, says answer, err error, now time.Time) {
	switch {
	case err != nil:
		a.counts.Failed++
		a.complain(d, e, err, now)
	case says == allowed:
		a.counts.Allowed++
	default:
		a.counts.Denied++
	}
}

// complain logs an error, at most once per interval and cluster.
func (a *Access) complain(d *desk, e *entry, err error, now time.Time) {
	if since := now.Sub(d.failed); since >= 0 && since < failureEvery {
		return
	}
	d.failed = now
	a.cfg.Log.Warn("API server cannot answer access reviews, denying unknown callers",
		"cluster", e.subject.Cluster, "subject", user(e.subject), "error", text.Clean(err.Error()))
}

// review waits for a slot and asks. asked is when: an answer dates from its question.
func (a *Access) review(ctx context.Context, slots chan struct{}, s Subject) (says answer, asked time.Time, err error) {
	wait, cancel := context.WithTimeout(ctx, 2*a.cfg.Deadline)
	defer cancel()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-wait.Done():
		return denied, a.cfg.Now(), fmt.Errorf("%d reviews are already in progress", cap(slots))
	}
	asked = a.cfg.Now()
	says, err = a.create(ctx, s)
	return says, asked, err
}

func (a *Access) create(ctx context.Context, s Subject) (answer, error) {
	reviews, ok := a.cfg.Reviews(s.Cluster)
	if !ok {
		return denied, errors.New("the cluster is not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	reply, err := reviews.Create(ctx, question(s), metav1.CreateOptions{})
	if err != nil {
		return denied, err
	}
	if reply.Status.Allowed && !reply.Status.Denied {
		return allowed, nil
	}
	return denied, nil
}

func question(s Subject) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   user(s),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.Namespace, Verb: "list", Version: "v1", Resource: "secrets",
		},
	}}
}

// user returns the Kubernetes user name of the service account.
func user(s Subject) string { return "system:serviceaccount:" + s.Namespace + ":" + s.ServiceAccount }
