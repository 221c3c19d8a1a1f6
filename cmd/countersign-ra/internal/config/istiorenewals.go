package config

import (
	"fmt"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// IstioRenewals are of machines that present the certificate they hold, which a token obtained that
// is bound to no pod, or which was renewed from such a one.
type IstioRenewals struct {
	// Identities are SPIFFE IDs of machines, such as spiffe://cluster.local/ns/vm/sa/db; one that
	// ends in /* stands for all below it. Default: none, and client certificates are not asked
	// for.
	Identities []string `json:"identities"`
	// Longest is how long after the token renewals go on. Default: 720h.
	Longest agent.Duration `json:"longest"`
}

// The bounds of Longest.
const (
	shortestRenewals = time.Minute
	longestRenewals  = 366 * 24 * time.Hour
)

func (i *IstioRenewals) check(p *settings.Problems) {
	const path = "istio.renewals"
	if len(i.Identities) == 0 {
		if i.Longest.Duration != 0 {
			p.Say(path+".longest", i.Longest, "it has no effect without identities; write SPIFFE IDs of machines there, or remove this")
		}
		return
	}
	if i.Longest.Duration == 0 {
		i.Longest = duration(30 * 24 * time.Hour)
	}
	if l := i.Longest.Duration; l < shortestRenewals || l > longestRenewals {
		p.Say(path+".longest", i.Longest, "write 1m to 8784h")
	}
	for n, id := range i.Identities {
		if err := istioca.CheckListed(id); err != nil {
			p.Say(fmt.Sprintf("%s.identities.%d", path, n), id, "write a SPIFFE ID, such as spiffe://cluster.local/ns/vm/sa/db, or one that ends in /*")
		}
	}
}
