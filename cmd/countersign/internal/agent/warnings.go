package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand/bootstrap"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/outputs"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/state"
)

// Warnings returns problems that a valid configuration does not show: missing files of revocation
// lists and tokens, a key of the state that cannot be used, a missing folder for the providers'
// sockets, which a service manager may create, and certificates that the next restart would order.
func Warnings(env environ.Vars, c config.Config) (faults []string) {
	faults = append(ordersAtStart(c), missingFiles(c)...)
	if err := checkRuntimeDir(env, c); err != nil {
		faults = append(faults, err.Error())
	}
	if err := demand.Faults(c); err != nil {
		faults = append(faults, strings.Split(err.Error(), "\n")...)
	}
	if envoy := bootstrap.FileOf(c.Proxy.Command); envoy != "" {
		faults = append(faults, EnvoyFaults(c, envoy)...)
	}
	for _, bundle := range revocationOf(c, nil, nil).Bundles {
		for _, fault := range bundle.Faults() {
			faults = append(faults, "crl."+bundle.Name+": "+fault)
		}
	}
	return faults
}

// EnvoyFaults returns what in an Envoy bootstrap does not fit the rules for names on demand.
func EnvoyFaults(c config.Config, file string) []string {
	names := 0
	for _, entry := range c.Rules() {
		names += int(entry.OnDemand.Names)
	}
	if names == 0 {
		return nil
	}
	return bootstrap.Faults(file, names)
}

// missingFiles names files that the agent would wait for, or refuse. What only another user may read
// is not known here.
func missingFiles(c config.Config) (warnings []string) {
	for _, entry := range c.Providers {
		for _, source := range entry.TokenSources() {
			if _, err := os.Stat(source.File); source.File != "" && err != nil && !errors.Is(err, fs.ErrPermission) {
				warnings = append(warnings, fmt.Sprintf("providers.%s.token.file: %v; the agent waits for it", entry.Name, err))
			}
		}
	}
	if c.State.KeyFile != "" {
		if _, err := state.ReadKey(c.State.KeyFile); err != nil && !errors.Is(err, fs.ErrPermission) {
			warnings = append(warnings, fmt.Sprintf("state.key_file: %v; the agent does not start", err))
		}
	}
	if c.Store.KeyFile != "" {
		if _, err := state.ReadKey(c.Store.KeyFile); err != nil && !errors.Is(err, fs.ErrPermission) {
			warnings = append(warnings, fmt.Sprintf("store.key_file: %v; the agent does not start", err))
		}
	}
	if c.Store.Folder != "" {
		if _, err := safefile.Stat(c.Store.Folder); err != nil && !errors.Is(err, fs.ErrPermission) {
			warnings = append(warnings, fmt.Sprintf("store.folder: %v; new names wait for it", err))
		}
	}
	return warnings
}

// ordersAtStart warns of an agent that orders new certificates at each start.
func ordersAtStart(c config.Config) (warnings []string) {
	if c.State.Dir != "" {
		return nil
	}
	for _, entry := range c.Providers {
		if c.Costly(entry.Name) && keepsNone(c, entry.Name) {
			warnings = append(warnings, fmt.Sprintf("state is not set: each start orders new certificates from %s, and such CAs bill or limit them (Let's Encrypt allows five a week for the same names); set state.dir and state.key_file", entry.Name))
		}
	}
	return warnings
}

// keepsNone reports whether a certificate of the provider is in no output, from which the next start
// would take it.
func keepsNone(c config.Config, provider string) bool {
	if c.Workloads.On() || len(c.Rules()) > 0 {
		return true
	}
	kept := map[string]bool{}
	written, _ := outputs.Configs(c, nil, nil) // a start reports what is wrong with one
	for _, o := range written {
		kept[o.Pair] = kept[o.Pair] || o.HasKey()
	}
	return slices.ContainsFunc(c.Secrets, func(s config.Secret) bool {
		return s.Kind == config.KeyPair && slices.Contains(s.Providers, provider) && !kept[s.Name]
	})
}
