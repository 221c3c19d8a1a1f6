//go:build e2e

package kubernetes_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/signing/shares"
	"github.com/countersign-dev/countersign/sdk/ra/share"
)

const (
	withReplicas = "resources: [BASE/ra]\ncomponents: [BASE/ra/replicas]"
	raShares     = "countersign-ra-shares"
	shareWithin  = 2 * time.Minute
)

// shareholder is a replica that wants all of a quota.
type shareholder struct {
	*share.Keeper
	end func()
}

func newShareholder(t *testing.T, client kubernetes.Interface) shareholder {
	t.Helper()
	store, err := shares.New(shares.Config{Client: client, Namespace: raNamespace, Name: raShares})
	must(t, err)
	keeper, err := share.New(share.Config{Store: store, Duration: 3 * time.Second, Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); keeper.Run(ctx) }()
	end := func() { cancel(); <-over }
	t.Cleanup(end)
	return shareholder{keeper, end}
}

// has waits until each has a share of at least that, or of less.
func has(t *testing.T, what string, all []shareholder, so func(share float64) bool) {
	t.Helper()
	soonIn(t, shareWithin, what, func() error {
		for _, s := range all {
			if got := s.Share("ca"); !so(got) {
				return fmt.Errorf("one has %v: %+v", got, s.Status())
			}
		}
		return nil
	})
}

// The component's rights suffice to share quotas, also over an API server that was away.
func TestRealReplicasShareAQuota(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace)
	apply(t, c, built(t, withReplicas, nil))
	client := c.ClientFor(c.Account(raNamespace, raAccount))
	both := []shareholder{newShareholder(t, client), newShareholder(t, client)}
	half := func(share float64) bool { return share > 0.45 && share <= 0.5 }
	has(t, "each has half", both, half)
	c.Stop()
	has(t, "nobody can tell", both, func(share float64) bool { return share == 0 })
	c.Resume()
	has(t, "each has half again", both, half)
	both[0].end()
	has(t, "one has all", both[1:], func(share float64) bool { return share > 0.9 })
	eachVerbIsNeeded(t, c, client)
}

// eachVerbIsNeeded takes the verbs of the component away, one by one.
func eachVerbIsNeeded(t *testing.T, c *kubetest.Cluster, client kubernetes.Interface) {
	t.Helper()
	roles := c.Client().RbacV1().Roles(raNamespace)
	role, err := roles.Get(t.Context(), "countersign-ra-replicas", metav1.GetOptions{})
	must(t, err)
	leases := client.CoordinationV1().Leases(raNamespace)
	for verb, do := range map[string]func() error{
		"get": func() error { return got(leases.Get(t.Context(), raShares, metav1.GetOptions{})) },
		"update": func() error {
			lease, err := c.Client().CoordinationV1().Leases(raNamespace).Get(t.Context(), raShares, metav1.GetOptions{})
			must(t, err)
			return got(leases.Update(t.Context(), lease, metav1.UpdateOptions{DryRun: dry}))
		},
	} {
		less := slices.DeleteFunc(slices.Clone(role.Rules[0].Verbs), func(v string) bool { return v == verb })
		setRules(t, c, role.Name, rbacv1.PolicyRule{APIGroups: role.Rules[0].APIGroups, Resources: role.Rules[0].Resources, ResourceNames: role.Rules[0].ResourceNames, Verbs: less})
		soon(t, "without "+verb, func() error { return refused(do()) })
		setRules(t, c, role.Name, role.Rules[0])
	}
	if len(role.Rules) != 1 || len(role.Rules[0].Verbs) != 2 {
		t.Errorf("the component has more rights: %+v", role.Rules)
	}
}

func setRules(t *testing.T, c *kubetest.Cluster, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	roles := c.Client().RbacV1().Roles(raNamespace)
	now, err := roles.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	now.Rules = []rbacv1.PolicyRule{rule}
	_, err = roles.Update(t.Context(), now, metav1.UpdateOptions{})
	must(t, err)
}
