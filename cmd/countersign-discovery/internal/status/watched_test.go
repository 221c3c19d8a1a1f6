package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

func TestWatchedAreCountedByClusterWorstFirst(t *testing.T) {
	t.Parallel()
	at := func(hours int) time.Time { return time.Unix(0, 0).Add(time.Duration(hours) * time.Hour) }
	w := WatchedOf([]string{"home", "east"}, []secrets.Watched{
		{Cluster: "east", Namespace: "shop", Name: "ending", State: secrets.Ending, Ends: at(2)},
		{Cluster: "east", Namespace: "shop", Name: "valid", State: secrets.Valid, Ends: at(9)},
		{Cluster: "east", Namespace: "shop", Name: "ended", State: secrets.Expired, Ends: at(-1)},
		{Cluster: "east", Namespace: "shop", Name: "ended-first", State: secrets.Expired, Ends: at(-2)},
		{Cluster: "east", Namespace: "shop", Name: "roots", Kind: secrets.ConfigMap, CA: true, State: secrets.Broken, Problem: "it has neither"},
		{Cluster: "gone", Namespace: "shop", Name: "valid", State: secrets.Valid, Ends: at(3)},
	})
	want := []WatchedCount{
		{Cluster: "east", Kind: "certificate", Valid: 1, Ending: 1, Expired: 2, FirstExpiry: at(2)}, {Cluster: "east", Kind: "ca", Malformed: 1},
		{Cluster: "gone", Kind: "certificate", Valid: 1, FirstExpiry: at(3)},
		{Cluster: "home", Kind: "certificate"}, {Cluster: "home", Kind: "ca"},
	}
	if fmt.Sprint(w.Counts) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", w.Counts, want)
	}
	var names []string
	for _, s := range w.Troubled {
		names = append(names, s.Object)
	}
	if got := fmt.Sprint(names); got != "[config map shop/roots secret shop/ended-first secret shop/ended secret shop/ending]" || w.More != 0 {
		t.Errorf("got %s and %d more", got, w.More)
	}
}

func TestWatchedListIsCut(t *testing.T) {
	t.Parallel()
	all := make([]secrets.Watched, maxTroubled+7)
	for i := range all {
		all[i] = secrets.Watched{Cluster: "east", Name: fmt.Sprint(i), State: secrets.Broken}
	}
	if w := WatchedOf(nil, all); len(w.Troubled) != maxTroubled || w.More != 7 || w.Counts[0].Malformed != len(all) {
		t.Errorf("%d are named, %d more", len(w.Troubled), w.More)
	}
}
