// Command bareserver refuses each name on delta ADS streams and does nothing else, or calls a URL
// before that: what gRPC and HTTP alone cost for a refusal.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]...); err != nil {
		fmt.Fprintln(os.Stderr, "bareserver:", err)
		os.Exit(1)
	}
}

func run(socket string, ask ...string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, refuser{ask: strings.Join(ask, "")})
	return server.Serve(listener)
}

type refuser struct {
	ask string // empty: none
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

// DeltaAggregatedResources refuses what is subscribed to, in the goroutine that receives.
func (f refuser) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for n := 0; ; n++ {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(r.ResourceNamesSubscribe) == 0 {
			continue
		}
		if f.ask != "" {
			reply, err := http.Get(f.ask + "?domain=" + r.ResourceNamesSubscribe[0])
			if err != nil {
				return err
			}
			reply.Body.Close()
		}
		err = stream.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeUrl, Nonce: strconv.Itoa(n), RemovedResources: r.ResourceNamesSubscribe})
		if err != nil {
			return err
		}
	}
}
