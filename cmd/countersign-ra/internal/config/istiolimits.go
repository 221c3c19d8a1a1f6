package config

import (
	"reflect"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// IstioLimits bound what callers of a mesh may use on each replica. An address is an IPv4 address,
// or an IPv6 network of 64 bits.
type IstioLimits struct {
	ConnectionsOfAddress     uint32 `json:"connections_of_address"`     // from one address. Default: 2000.
	Authentications          uint32 `json:"authentications"`            // calls being authenticated at once, and connections without an authenticated call. Default: 1000.
	AuthenticationsOfAddress uint32 `json:"authentications_of_address"` // of those, from one address, which has the same share of token reviews. Default: 600.
	CallsOfIdentity          uint32 `json:"calls_of_identity"`          // of one pod, or of all machines of one service account, each of which has at most as many as are left. Default: 64.
}

// The bounds of Hold. Clients do not wait for ever, and one that is held for long holds up others.
const (
	shortestHold = time.Second
	longestHold  = time.Minute
)

// usualIstio has the defaults that a file may change in part.
func usualIstio() Istio {
	return Istio{Hold: agent.Duration{Duration: 10 * time.Second}, Limits: IstioLimits{
		ConnectionsOfAddress: 2000, Authentications: 1000, AuthenticationsOfAddress: 600,
		CallsOfIdentity: 64,
	}}
}

func (i Istio) isUnset() bool { return reflect.DeepEqual(i, usualIstio()) }

func (i Istio) checkLimits(p *settings.Problems) {
	l := i.Limits
	for setting, value := range map[string]uint32{
		"connections_of_address": l.ConnectionsOfAddress,
		"authentications":        l.Authentications, "authentications_of_address": l.AuthenticationsOfAddress,
		"calls_of_identity": l.CallsOfIdentity,
	} {
		if value == 0 {
			p.Say("istio.limits."+setting, value, "write 1 or more")
		}
	}
	if h := i.Hold.Duration; h < shortestHold || h > longestHold {
		p.Say("istio.hold", i.Hold, "write 1s to 1m")
	}
}

// Bounds returns the limits and times of the door; those that are no settings have their defaults.
func (i Istio) Bounds() (istioca.Limits, istioca.Times) {
	l := i.Limits
	return istioca.Limits{
		ConnectionsOfAddress: int(l.ConnectionsOfAddress),
		Authentications:      int(l.Authentications), AuthenticationsOfAddress: int(l.AuthenticationsOfAddress),
		CallsOfCaller: int(l.CallsOfIdentity),
	}, istioca.Times{Hold: i.Hold.Duration}
}
