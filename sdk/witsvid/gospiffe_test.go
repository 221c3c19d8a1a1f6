package witsvid_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	gospiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	spiffe "github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	own "github.com/countersign-dev/countersign/sdk/witsvid"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// serve serves the secrets of web, and WIT-SVIDs if there is a source, on a socket until stop.
func serve(t *testing.T, socket string, offer workloadapi.Offer) (stop func()) {
	t.Helper()
	authority := catest.NewCA(catest.Options{})
	chain, key := authority.Pair(0, web)
	roots := authority.Bundle().PEM()
	secrets := secrettest.New(
		&secret.Item{Name: "default", Kind: secret.KeyPair, Version: "1", Chain: chain, Key: key},
		&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: "1", Roots: roots})
	server, err := workloadapi.Listen(workloadapi.Config{Path: socket, Offer: offer}, secrets)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		<-served
	}
}

// source is one whose authority publishes the key "a".
func source(t *testing.T, a *authority) (s *own.Source, stop func()) {
	t.Helper()
	s, err := own.New(own.Config{Signer: a, Log: new(logtest.Log).Logger()})
	if err != nil {
		t.Fatal(err)
	}
	a.sets <- jwks("a")
	return s, func() { _ = s.Close() }
}

// stub returns the standard's generated client, as go-spiffe has it, and a context with the header.
func stub(t *testing.T, socket string) (gospiffe.SpiffeWorkloadAPIClient, context.Context) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "workload.spiffe.io", "true"), time.Minute)
	t.Cleanup(cancel)
	return gospiffe.NewSpiffeWorkloadAPIClient(conn), ctx
}

// accepted fails unless a verifier with the bundle accepts a WIT-SVID with a proof.
func accepted(t *testing.T, v *own.Verifier, got *gospiffe.WITSVID) {
	t.Helper()
	proof, err := own.Prove(ca.Token(got.GetWitSvid()), []byte(got.GetWitSvidKey()), service, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if id, err := v.Verify(ca.Token(got.GetWitSvid()), proof, service); err != nil || id.ID != web {
		t.Errorf("%+v, %v", id, err)
	}
}

// The standard's client gets WIT-SVIDs over a rotation and a restart, and sdk/witsvid and go-spiffe
// verify them by the bundle of the Workload API.
func TestStandardClientHasWITSVIDs(t *testing.T) {
	socket := filepath.Join(proctest.Folder(t), "socket")
	a := &authority{t: t, sets: make(chan []byte)}
	s, stopSource := source(t, a)
	stop := serve(t, socket, workloadapi.Offer{WIT: s})
	client, ctx := stub(t, socket)
	bundles, err := client.FetchWITBundles(ctx, &gospiffe.WITBundlesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := bundles.Recv()
	if err != nil {
		t.Fatal(err)
	}
	v, err := own.NewVerifier(own.VerifierConfig{})
	if err == nil {
		err = v.SetKeys("example.org", []byte(bundle.GetBundles()["spiffe://example.org"]))
	}
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.FetchWITSVID(ctx, &gospiffe.WITSVIDRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, v, first.GetSvids()[0])

	a.answer(func(_ context.Context, req ca.WITRequest) (ca.Token, error) {
		return sign(t, keys()["b"], "b", "wit+jwt", claimsOf(req, nil)), nil
	})
	a.sets <- jwks("b") // the key "a" is withdrawn, so the WIT-SVID is replaced
	second, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if second.GetSvids()[0].GetWitSvidKey() == first.GetSvids()[0].GetWitSvidKey() {
		t.Error("the same key")
	}
	if bundle, err = bundles.Recv(); err == nil {
		err = v.SetKeys("example.org", []byte(bundle.GetBundles()["spiffe://example.org"]))
	}
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, v, second.GetSvids()[0])
	stop()
	stopSource()

	a.answer(nil)
	s, stopSource = source(t, a)
	defer stopSource()
	defer serve(t, socket, workloadapi.Offer{WIT: s})()
	goSPIFFE, err := spiffe.New(ctx, spiffe.WithAddr("unix://"+socket))
	if err != nil {
		t.Fatal(err)
	}
	defer goSPIFFE.Close()
	later, err := goSPIFFE.FetchWITSVID(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	set, err := goSPIFFE.FetchWITBundles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := witsvid.ParseAndValidate(later.Marshal(), set); err != nil || got.ID.String() != web || later.PrivateKey == nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestStandardClientGetsUnimplementedWithoutTheExperiment(t *testing.T) {
	socket := filepath.Join(proctest.Folder(t), "socket")
	defer serve(t, socket, workloadapi.Offer{})()
	client, ctx := stub(t, socket)
	svids, err := client.FetchWITSVID(ctx, &gospiffe.WITSVIDRequest{})
	if err == nil {
		_, err = svids.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	bundles, err := client.FetchWITBundles(ctx, &gospiffe.WITBundlesRequest{})
	if err == nil {
		_, err = bundles.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}
