package demand

import "github.com/countersign-dev/countersign/cmd/internal/config"

// NeedRestart returns the settings of rules that an agent which started with one configuration cannot
// apply from another one while it runs: it opened no state for names if it had no rules, and the limit
// of names on its streams is that of the start.
func NeedRestart(started, now config.Config) (names []string) {
	stateless := now.State.Dir != "" && len(started.Rules()) == 0
	before := map[string]uint32{}
	for _, entry := range started.Rules() {
		before[entry.Name] = entry.OnDemand.Names
	}
	for _, entry := range now.Rules() {
		path := "secrets." + entry.Name
		if stateless {
			names = append(names, path+".match")
		}
		if MaxNames(now) > MaxNames(started) && entry.OnDemand.Names > before[entry.Name] {
			names = append(names, path+".on_demand.names")
		}
	}
	return names
}
