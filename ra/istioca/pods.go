package istioca

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// ErrNoPod is a no of [Pods].
var ErrNoPod = errors.New("there is no such live pod")

// Pods looks up the pods of clusters. A negative answer wraps [ErrNoPod] and is about what the cluster's own
// API server has now, not about what an informer has not seen yet; any other error means that
// the answer is unknown. It must be safe for concurrent use and end with ctx.
type Pods interface {
	// Alive returns the node that a pod is bound to: a pod of that name, UID and service
	// account that has not finished.
	Alive(ctx context.Context, pod Pod) (node string, err error)
	// Runs returns nil if a pod of the service account is bound to the node and has not
	// finished. A pod that names no service account has none.
	Runs(ctx context.Context, account Account, node string) error
}

// Pod identifies the pod that a token is bound to.
type Pod struct {
	Account
	Name, UID string
}

func accountOf(s ra.Subject) Account { return Account{s.Cluster, s.Namespace, s.ServiceAccount} }

// alive looks up the pod that a caller's token is bound to: a review may have been remembered
// since it was deleted. A caller without a pod passes.
func (s *Server) alive(ctx context.Context, who caller) (caller, error) {
	if s.cfg.Pods == nil || who.Pod == "" && who.PodUID == "" {
		return who, nil
	}
	node, err := s.cfg.Pods.Alive(ctx, Pod{accountOf(who.Subject), who.Pod, who.PodUID})
	switch {
	case errors.Is(err, ErrNoPod):
		return who, authn.Errorf(authn.ErrRefused, "the caller's pod: %w", err)
	case err != nil:
		return who, authn.Errorf(authn.ErrUnavailable, "look up the caller's pod: %w", err)
	case node == "" || who.Node != "" && who.Node != node:
		return who, authn.Errorf(authn.ErrRefused, "the token is of the node %.256q, and the caller's pod is on %.256q", who.Node, node)
	}
	who.Node, who.alive = node, true
	return who, nil
}

// onNode returns an error that wraps ErrNoPod unless the account has a pod on the caller's
// node, in the caller's cluster.
func (s *Server) onNode(ctx context.Context, who caller, account Account) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Lookup)
	defer cancel()
	if err := s.cfg.Pods.Runs(ctx, account, who.Node); err != nil {
		return fmt.Errorf("a pod of service account %s/%s on the node %.256q: %w", account.Namespace, account.ServiceAccount, who.Node, err)
	}
	return nil
}
