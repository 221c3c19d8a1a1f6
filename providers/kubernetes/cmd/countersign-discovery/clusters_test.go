package main

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/providers/kubernetes/cmd/countersign-discovery/config"
)

// ofClusters is what the metrics have of the clusters alone.
type ofClusters struct{ *clusters }

func (c ofClusters) Describe(to chan<- *prometheus.Desc) { c.describe(to) }

func (c ofClusters) Collect(to chan<- prometheus.Metric) { c.collect(gatherer{to}) }

func TestWhatIsNotServedOrHasExpiredIsCounted(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "home"), `{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`)
	k, err := newClusters(config.Config{Cluster: config.Cluster{ID: "home", Kubeconfig: filepath.Join(dir, "home"), SystemNamespace: "istio-system"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if _, err := k.secrets.Peek(nil, "kubernetes://foo"); err == nil {
		t.Error("nobody has a secret")
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(ofClusters{k})
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range all {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"refused_secrets_total identity": 1, "refused_secrets_total rights": 0, "expired_secrets_total": 0, "malformed_secrets_total": 0,
	} {
		if value, there := got["countersign_discovery_"+name]; !there || value != want {
			t.Errorf("%s is %v, there: %t", name, value, there)
		}
	}
}
