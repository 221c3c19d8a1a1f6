package provider_test

import (
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// An agent's check of a reply, with the names of the request in place of the CSR's.
func TestNamesFromRequestPassTheCheckOfTheRequest(t *testing.T) {
	authority := catest.NewCA(catest.Options{NamesFromRequest: true})
	req, key := testkit.Request(t, "spiffe://example.org/admin", "admin.example.org")
	req.SubjectID, req.DNSNames = "spiffe://example.org/web", []string{"web.example.org"}
	reply, err := authority.CSRSign(t.Context(), req)
	must(t, err)
	testkit.Passes(t, reply, testkit.Check(t, req, key))
	other := catest.NewCA(catest.Options{})
	if reply, err = other.CSRSign(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	check := testkit.Check(t, req, key)
	check.Roots = other.Bundle()
	var wrong *pki.CheckError
	if _, err := check.Chain(reply.Chain); !errors.As(err, &wrong) || wrong.Check != "names" {
		t.Errorf("the CSR's names pass: %v", err)
	}
	req.SubjectID, req.DNSNames = "", nil
	if _, err := authority.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("without names: %v", err)
	}
}
