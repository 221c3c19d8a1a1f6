package access

import (
	"context"
	"errors"
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
	ctx, cancel := context.WithCancel(a.ctx)
	e.cancel, e.began = cancel, a.cfg.Now()
	desk, round := a.desks[e.subject.Cluster], e.round
	a.arm(e)
	a.flights.Go(func() {
		defer cancel()
		a.fly(ctx, desk, e, round)
	})
}

// fly runs one review, shared by all waiting callers. It waits for its turn for as long as that
// takes: a full queue is no answer.
func (a *Access) fly(ctx context.Context, d *desk, e *entry, round int) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	asked := a.cfg.Now() // an answer dates from its question
	says, err := a.create(ctx, e.subject)
	<-d.slots
	notify(a.land(d, e, round, says, asked, err))
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
	d.settle(e, &a.cfg, says, err, asked, now)
	a.tally(d, e, says, err, now)
	a.arm(e)
	return e.concerned(e.verdict(&a.cfg, now))
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
	a.cfg.Log.Warn("API server cannot answer access reviews, serving only those who hold a secret",
		"cluster", e.subject.Cluster, "subject", user(e.subject), "error", text.Clean(err.Error()))
}

// create asks the API server. An error means that it cannot tell, or that it does not let us ask.
func (a *Access) create(ctx context.Context, s Subject) (answer, error) {
	reviews, exists := a.cfg.Reviews(s.Cluster)
	switch {
	case !exists:
		return denied, nil
	case reviews == nil:
		return unknown, errors.New("the cluster is not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	reply, err := reviews.Create(ctx, question(s), metav1.CreateOptions{})
	switch {
	case err != nil:
		return unknown, err
	case reply.Status.Denied:
		return denied, nil
	case reply.Status.Allowed:
		return allowed, nil
	case reply.Status.EvaluationError != "": // an authorizer could not be asked
		return unknown, errors.New(reply.Status.EvaluationError)
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
