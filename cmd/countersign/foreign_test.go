package main

import (
	"net"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
)

// standIn is a script's program at a socket, other than Countersign.
//
//	foreign sds PATH     serves SDS
//	foreign grpc PATH    speaks gRPC and has no SDS
//	foreign hang PATH    accepts connections and sends nothing
func standIn(ts *testscript.TestScript, _ bool, args []string) {
	kind, path := args[0], ts.MkAbs(args[1])
	listener, err := net.Listen("unix", path)
	ts.Check(err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	end := func() { _ = listener.Close() }
	switch kind {
	case "hang":
	case "sds", "grpc":
		server := grpc.NewServer()
		if kind == "sds" {
			secretv3.RegisterSecretDiscoveryServiceServer(server, keeper{})
		}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(listener) }()
		end = func() { server.Stop(); <-served }
	default:
		ts.Fatalf("there is no stand-in %q", kind)
	}
	ts.Defer(end)
	agentOf(ts).standIns = append(agentOf(ts).standIns, end)
}

// keeper keeps a stream open on which nothing is asked for.
type keeper struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
}

func (keeper) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	<-stream.Context().Done()
	return nil
}
