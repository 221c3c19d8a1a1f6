package sds_test

import (
	"crypto/ed25519"
	"errors"
	"log/slog"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestDeviceBoundKeyIsRefusedAndOthersServed(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	inDevice := &secret.Item{Name: "device", Kind: secret.KeyPair, Version: "1", Chain: []byte("chain"), KeyHandle: key}
	var log logtest.Log
	conn := dial(t, start(t, secrettest.New(inDevice, bundle("1")), sds.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}))
	c := open(t, conn)
	c.ask("device", "ROOTCA")
	if got := c.get(); len(got) != 1 || got["ROOTCA"] == nil {
		t.Errorf("got %v, want ROOTCA alone", got)
	}
	_, err = secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: []string{"device"},
	})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a fetch of it: %v, want NotFound", err)
	}
	if n := strings.Count(log.String(), "its key does not leave the device"); n != 1 {
		t.Errorf("the log has so %d times:\n%s", n, &log)
	}
}

func TestDeviceBoundKeyIsUnknownToOtherServers(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	inDevice := &secret.Item{Name: "device", Kind: secret.KeyPair, Version: "1", Chain: []byte("chain"), KeyHandle: key}
	if _, err := sds.Resources(secrettest.New(inDevice)).Peek(secret.Caller{}, "device"); !errors.Is(err, xds.ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
}
