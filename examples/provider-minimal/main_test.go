package main

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	conformance.Run(t, conformance.Kit{}, provider.Define("minimal", "0.1.0", open).Provider)
}
