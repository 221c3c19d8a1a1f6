package workloadapi_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func ExampleListen() {
	dir, err := os.MkdirTemp("", "workloadapi")
	if err != nil {
		log.Fatal(err)
	}
	var source secret.Source = &secret.Manager{} // in a program, secret.New's
	server, err := workloadapi.Listen(workloadapi.Config{
		Path: filepath.Join(dir, "agent.sock"),
		Offer: workloadapi.Offer{Identities: []workloadapi.Identity{
			{Certificate: "default", Roots: "ROOTCA", Hint: "internal"},
			{Certificate: "edge", Roots: "ROOTCA", Hint: "external"},
		}},
	}, source)
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve()
	fmt.Println(server.Streams(), server.Close(context.Background()), os.RemoveAll(dir))
	// Output: 0 <nil> <nil>
}
