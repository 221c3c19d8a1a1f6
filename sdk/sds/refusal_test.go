package sds_test

import (
	"bytes"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// answerUntil refuses each response with a secret that bad reports, as Envoy does, and accepts all
// others, until the client holds the names. It returns the texts of those that it refused alone.
func (c *client) answerUntil(bad func(*tlsv3.Secret) bool, names ...string) (alone [][]byte) {
	c.t.Helper()
	for held := map[string]bool{}; slices.ContainsFunc(names, func(name string) bool { return !held[name] }); {
		answer, err := c.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		var all []*tlsv3.Secret
		for _, resource := range answer.GetResources() {
			var s tlsv3.Secret
			if err := resource.UnmarshalTo(&s); err != nil {
				c.t.Fatal(err)
			}
			all = append(all, &s)
		}
		reply := &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: c.names, ResponseNonce: answer.GetNonce(), VersionInfo: answer.GetVersionInfo()}
		if slices.ContainsFunc(all, bad) {
			reply.VersionInfo, reply.ErrorDetail = "", &rpcstatus.Status{Message: "Failed to load"}
			if len(all) == 1 {
				alone = append(alone, answer.GetResources()[0].GetValue())
			}
		} else {
			for _, s := range all {
				held[s.GetName()] = true
			}
		}
		if err := c.Send(reply); err != nil {
			c.t.Fatal(err)
		}
	}
	return alone
}

// A bundle whose revocation lists the client cannot load, or a key pair that it cannot, takes none
// of the other names on the stream with it.
func TestSecretThatAClientRefusesTakesNoOtherOfTheStreamWithIt(t *testing.T) {
	const pem = "-----BEGIN X-----\n-----END X-----\n"
	item := func(name string, kind secret.Kind) *secret.Item {
		i := &secret.Item{Name: name, Kind: kind, Version: name}
		if kind == secret.KeyPair {
			i.Chain, i.Key = []byte(pem+name), []byte(pem+name)
		} else {
			i.Roots, i.RootFingerprints = []byte(pem+name), []string{name}
		}
		return i
	}
	revocable := item("ROOTCA", secret.TrustBundle)
	revocable.CRLs = []byte(pem + "lists")
	leaf := item("default", secret.KeyPair)
	leaf.RootFingerprints = []string{"ROOTCA"}
	all := []string{"ROOTCA", "default", "edge", "far", "near"}
	for bad, refuses := range map[string]func(*tlsv3.Secret) bool{
		"ROOTCA": func(s *tlsv3.Secret) bool { return len(s.GetValidationContext().GetCrl().GetInlineBytes()) > 0 },
		"edge": func(s *tlsv3.Secret) bool {
			return bytes.Contains(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes(), []byte("edge"))
		},
	} {
		t.Run(bad, func(t *testing.T) {
			source := secrettest.New(revocable, leaf, item("edge", secret.KeyPair), item("far", secret.TrustBundle), item("near", secret.TrustBundle))
			c := open(t, dial(t, start(t, source, sds.Config{})))
			c.names = all
			must(t, c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: all, Node: &corev3.Node{Id: "test"}}))
			good := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == bad })
			for i, sent := range c.answerUntil(refuses, good...) {
				if i > 0 {
					t.Errorf("the secret at fault was sent by itself again: %q", sent)
				}
			}
		})
	}
}
