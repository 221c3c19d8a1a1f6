// Command istio is the certificate half of Istio for tests: "istio agent" is its agent without
// Envoy, "istio ca" is istiod's CA, and "istio bundle" is istiod's reader of a SPIFFE bundle endpoint.
// The first two take Istio's own variables. Each ends with SIGTERM.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	parts := map[string]func(context.Context) error{"agent": agent, "bundle": bundle, "ca": authority}
	if len(os.Args) != 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: istio agent|bundle|ca")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := parts[os.Args[1]](ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
