package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// reportOf returns what / and /status show.
func reportOf(a *agent.Agent, p *providers, child *proxyChild, jwts jwtSVIDs, wits witSVIDs, machine overview.Machine) status.Report {
	r := status.Report{At: time.Now(), Build: buildinfo.This(), Machine: machine, Secrets: a.Status(), Streams: a.Streams(), Proxy: child.status(), JWTSVIDs: jwts.status(), WITSVIDs: wits.status()}
	r.Ends = status.EndsOf(r.Secrets)
	if counts, ok := a.Identities(); ok {
		r.Workloads = &counts
	}
	if rules, ok := a.OnDemand(); ok && len(rules.Rules) > 0 {
		r.OnDemand = &rules
	}
	if gateway, ok := a.Gateway(); ok {
		r.Gateway = &gateway
	}
	for _, provider := range p.all() {
		r.Providers = append(r.Providers, overview.ProviderOf(provider.Status()))
	}
	slices.SortFunc(r.Providers, func(a, b overview.Provider) int { return strings.Compare(a.Name, b.Name) })
	p.recorder.Complete(&r)
	return r
}

// machineOf describes this process when it starts.
func machineOf(c config.Config, file string) overview.Machine {
	m := overview.ThisMachine()
	m.Config = file
	if c.Socket.Enabled {
		m.Socket = c.ListenPath()
	}
	if c.Gateway.Enabled {
		m.Gateway = c.Gateway.Socket
	}
	return m
}
