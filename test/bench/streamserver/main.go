// Command streamserver serves one secret over SDS, and over the SPIFFE Workload API
// on a socket whose name ends in ".spiffe", for measuring what streams cost. Its order
// (package orders) is "rotate", answered when all watchers are notified.
package main

import (
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
	"github.com/countersign-dev/countersign/test/bench/orders"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "streamserver:", err)
		os.Exit(1)
	}
}

func run(socket string) error {
	held, err := newRotating()
	if err != nil {
		return err
	}
	server, err := sds.Listen(sds.Config{Path: socket}, held)
	if err != nil {
		return err
	}
	spiffe, err := workloadapi.Listen(workloadapi.Config{Path: socket + ".spiffe"}, held)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve() }()
	go func() { failed <- spiffe.Serve() }()
	go func() {
		failed <- orders.Obey(map[string]orders.Order{"rotate": func(string) (any, error) { return nil, held.rotate() }})
	}()
	return <-failed
}
