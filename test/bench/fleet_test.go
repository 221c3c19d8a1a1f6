package bench

import (
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation/fleet"
)

const fleetRuns = 9

// thousand is a thousand agents of 10^5 that share 7 requests a second.
var thousand = fleet.Config{Agents: 1000, Quota: 0.07, Life: 24 * time.Hour, Until: 72 * time.Hour}

// measureFleet measures what the engine's waits cost a fleet, in virtual time.
func measureFleet() error {
	fmt.Printf("\n| %d agents that start together against a quota of %.2f/s, in virtual time | calls for each certificate | quota used | complete, in bounds of %s | calls for each later |\n|---|---|---|---|---|\n",
		thousand.Agents, thousand.Quota, thousand.Bound().Round(time.Minute))
	for _, c := range []struct {
		says string
		info time.Duration
	}{{"the CA does not say when to come back", 0}, {"it says 1 minute", time.Minute}, {"it says 10 minutes", 10 * time.Minute}} {
		config := thousand
		config.RetryInfo = c.info
		var runs []fleet.Result
		for range fleetRuns {
			runs = append(runs, fleet.Run(config))
		}
		of := func(value func(fleet.Result) float64) float64 { return middle(runs, value) }
		fmt.Printf("| %s | %.1f | %.0f %% | %.2f | %.2f |\n", c.says,
			of(func(r fleet.Result) float64 { return r.Cold.PerCertificate() }),
			100*of(func(r fleet.Result) float64 { return r.Used }),
			of(func(r fleet.Result) float64 { return r.Complete.Seconds() / config.Bound().Seconds() }),
			of(func(r fleet.Result) float64 { return r.Steady.PerCertificate() }))
	}
	return nil
}
