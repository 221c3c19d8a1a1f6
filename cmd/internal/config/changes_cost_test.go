package config

import (
	"fmt"
	"runtime"
	"testing"
)

func TestChangesOfTwiceTheSecretsCostTwiceAsMuch(t *testing.T) {
	cost := func(n int) float64 {
		var old, now Config
		for i := range n {
			now.Secrets = append(now.Secrets, Secret{Name: fmt.Sprint("name-", i), Kind: KeyPair})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := len(Changed(old, now)); got != n {
			t.Fatalf("%d of %d new secrets are changes", got, n)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	const n, most = 200, 2.4
	if ratio := cost(2*n) / cost(n); ratio > most {
		t.Errorf("a reload with %d new secrets allocates %.2f times as much as one with %d, want %.1f at most", 2*n, ratio, n, most)
	}
}
