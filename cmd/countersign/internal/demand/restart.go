package demand

import "github.com/countersign-dev/countersign/cmd/internal/config"

// NeedRestart returns the settings of rules that an agent which started with one configuration cannot
// apply from another one while it runs: the limit of names on its streams is that of the start.
func NeedRestart(started, now config.Config) (names []string) {
	before := map[string]int{}
	for _, entry := range started.Rules() {
		before[entry.Name] = room(entry)
	}
	for _, entry := range now.Rules() {
		if MaxNames(now) > MaxNames(started) && room(entry) > before[entry.Name] {
			names = append(names, "secrets."+entry.Name+".on_demand.names")
		}
	}
	return names
}
