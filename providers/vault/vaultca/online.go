package vaultca

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// ValidateOnline asks the server for its issuers, logs in where that needs no request's token,
// and reads the role, if it may. It has nothing signed.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(s)
	if err != nil {
		return provider.Faults("", err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.roots(ctx); err != nil {
		return provider.Faults("", err)
	}
	if s.Verbatim {
		return []provider.Diagnostic{{
			Warning: true, Pointer: "/verbatim",
			Summary: "verbatim is true: requests whose CSR has no names or other ones, as a kubelet's, are refused",
			Detail:  adviceForAgents + "unset verbatim and name a role.",
		}}
	}
	if s.Login.needsRequest() {
		return nil
	}
	held, err := c.session(ctx, "")
	if err != nil {
		return provider.Faults("", err)
	}
	found, err := c.askRole(ctx, held.token)
	return append(found, provider.Faults("", err)...)
}

// needsRequest reports whether a login needs a request.
func (l Login) needsRequest() bool {
	return (l.method() == Token || l.method() == Kubernetes) && l.TokenFile == ""
}

const adviceForAgents = "Ignore this if all CSRs have the names of their requests, as an agent's. Otherwise "

// role is a role's settings, as far as they decide whose names count. Both are true by default.
type role struct {
	Data struct {
		SANs       bool `json:"use_csr_sans"`
		CommonName bool `json:"use_csr_common_name"`
	} `json:"data"`
}

// warnings lists the settings that keep the names of a request from counting.
func (r role) warnings(name string) (found []provider.Diagnostic) {
	for setting, on := range map[string]bool{"use_csr_sans": r.Data.SANs, "use_csr_common_name": r.Data.CommonName} {
		if on {
			found = append(found, provider.Diagnostic{
				Warning: true, Pointer: "/role",
				Summary: "role " + name + " has " + setting + "=true: requests whose CSR has no names or other ones, as a kubelet's, are refused",
				Detail:  adviceForAgents + "write the role with " + setting + "=false.",
			})
		}
	}
	slices.SortFunc(found, func(a, b provider.Diagnostic) int { return strings.Compare(a.Summary, b.Summary) })
	return found
}

// askRole reads the role. A token that may sign need not be allowed to read it: a refusal is no
// finding.
func (c *CA) askRole(ctx context.Context, token ca.Token) ([]provider.Diagnostic, error) {
	var answer role
	err := c.call(ctx, rest.Call{Method: http.MethodGet, Path: "/v1/" + c.settings.mount() + "/roles/" + c.settings.Role}, token, &answer)
	if ca.ReasonFor(err) == ca.Denied {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return answer.warnings(c.settings.Role), nil
}
