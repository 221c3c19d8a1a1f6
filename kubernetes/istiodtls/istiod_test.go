package istiodtls_test

import (
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/ra"
)

func TestNamesOfIstiod(t *testing.T) {
	want := []string{"istiod.mesh.svc", "istiod-remote.mesh.svc", "istio-pilot.mesh.svc", "istiod-canary.mesh.svc"}
	if got := istiod.Names("mesh", "", "default", "canary"); !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestRuleIsForIstiodAtItsDoor(t *testing.T) {
	policy, err := ra.NewPolicy("home", []ra.Rule{istiod.Rule("ca", "mesh", []string{"home", "east"}, istiod.Names("mesh"), time.Hour)})
	must(t, err)
	for _, row := range []struct {
		subject ra.Subject
		door    string
		granted bool
	}{
		{istiod.Subject("home", "mesh"), istiod.Door, true},
		{istiod.Subject("east", "mesh"), istiod.Door, true},
		{istiod.Subject("west", "mesh"), istiod.Door, false},
		{istiod.Subject("home", "shop"), istiod.Door, false},
		{istiod.Subject("home", "mesh"), "istio", false},
		{ra.Subject{Kind: ra.ServiceAccount, Cluster: "home", Namespace: "mesh", ServiceAccount: "web"}, istiod.Door, false},
		{ra.Subject{Kind: ra.Pod, Cluster: "home", Namespace: "mesh", ServiceAccount: "istiod", Pod: "istiod-0", PodUID: "1"}, istiod.Door, false},
	} {
		if d := policy.Try(row.subject, row.door); row.granted != (d.Denied == "") {
			t.Errorf("%s at %s: %+v", row.subject, row.door, d)
		}
	}
}
