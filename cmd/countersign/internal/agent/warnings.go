package agent

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

// Warnings returns problems that do not prevent a start: missing files of revocation lists, a
// missing folder for the providers' sockets, which a service manager may create, and certificates
// that the next restart would order.
func Warnings(env environ.Vars, c config.Config) (faults []string) {
	faults = ordersAtStart(c)
	if err := checkRuntimeDir(env, c); err != nil {
		faults = append(faults, err.Error())
	}
	if err := demand.Faults(c); err != nil {
		faults = append(faults, strings.Split(err.Error(), "\n")...)
	}
	for _, bundle := range revocationOf(c, nil, nil).Bundles {
		for _, fault := range bundle.Faults() {
			faults = append(faults, "crl."+bundle.Name+": "+fault)
		}
	}
	return faults
}

// ordersAtStart warns of an agent that orders new certificates at each start.
func ordersAtStart(c config.Config) (warnings []string) {
	if c.State.Dir != "" {
		return nil
	}
	for _, entry := range c.Providers {
		if c.Costly(entry.Name) {
			warnings = append(warnings, fmt.Sprintf("state is not set: each start orders new certificates from %s, and such CAs bill or limit them (Let's Encrypt allows five a week for the same names); set state.dir and state.key_file", entry.Name))
		}
	}
	return warnings
}
