// Command foreignsds stands for a program that serves the workload's identity at the
// very socket that an agent would take, as SPIRE's agent does. Started as
//
//	foreignsds SOCKET CHAIN KEY ROOTS
//
// it serves these files as "default" and "ROOTCA", state of the world, until SIGTERM,
// to everybody who may connect.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

const typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "foreignsds:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("write foreignsds SOCKET CHAIN KEY ROOTS; there are %d arguments", len(args))
	}
	listener, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	if err := os.Chmod(args[0], 0o666); err != nil {
		return err
	}
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, &secrets{chain: args[1], key: args[2], roots: args[3]})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() { <-ended; server.Stop() }()
	return server.Serve(listener)
}

// secrets are read from their files for each answer.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	chain, key, roots string
}

// StreamSecrets answers each subscription once, and takes every acknowledgement.
func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	var names []string
	for n := 1; ; n++ {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.Equal(names, req.ResourceNames) {
			continue // an acknowledgement
		}
		names = req.ResourceNames
		answer := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: strconv.Itoa(n), Nonce: strconv.Itoa(n)}
		for _, name := range names {
			resource, err := anypb.New(s.secret(name))
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, resource)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s *secrets) secret(name string) *tlsv3.Secret {
	if name == "ROOTCA" {
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.roots)}}}
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(s.chain), PrivateKey: inline(s.key)}}}
}

func inline(path string) *corev3.DataSource {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "foreignsds:", err) // the client refuses what is empty
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}
