package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/status"
	"github.com/countersign-dev/countersign/sdk/agent"
)

// reportOf returns what / and /status show.
func reportOf(a *agent.Agent, p *providers, child *proxyChild) status.Report {
	r := status.Report{At: time.Now(), Build: buildinfo.This(), Secrets: a.Status(), Streams: a.Streams(), Proxy: child.status()}
	if counts, ok := a.Identities(); ok {
		r.Workloads = &counts
	}
	if gateway, ok := a.Gateway(); ok {
		r.Gateway = &gateway
	}
	for _, provider := range p.all() {
		r.Providers = append(r.Providers, status.ProviderOf(provider.Status()))
	}
	slices.SortFunc(r.Providers, func(a, b status.Provider) int { return strings.Compare(a.Name, b.Name) })
	p.recorder.Complete(&r)
	return r
}
