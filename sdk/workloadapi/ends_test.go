package workloadapi_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// ready is a source with one identity.
func ready(t *testing.T) *secrettest.Source {
	t.Helper()
	authority := catest.NewCA(catest.Options{})
	return secrettest.New(keyPair(t, authority, "default", "spiffe://example.org/web"), bundle(authority, "ROOTCA"))
}

var calls = map[string]any{
	"FetchX509SVID": &workloadv1.X509SVIDRequest{}, "FetchX509Bundles": &workloadv1.X509BundlesRequest{},
	"FetchJWTSVID": &workloadv1.JWTSVIDRequest{}, "FetchJWTBundles": &workloadv1.JWTBundlesRequest{}, "ValidateJWTSVID": &workloadv1.ValidateJWTSVIDRequest{},
}

func TestCallWithoutSecurityHeaderIsRefused(t *testing.T) {
	_, c := start(t, ready(t), workloadapi.Config{})
	for _, header := range [][]string{nil, {"workload.spiffe.io", "True"}, {"workload.spiffe.io", ""}, {"workload.spiffe.io", "true", "workload.spiffe.io", "false"}} {
		c.header = header
		for method, request := range calls {
			err := open[workloadv1.X509SVIDResponse](c, method, request).end()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "workload.spiffe.io must be true") {
				t.Errorf("%s with %q: %v", method, header, err)
			}
		}
	}
}

func TestJWTSVIDsAreNotOffered(t *testing.T) {
	_, c := start(t, ready(t), workloadapi.Config{})
	for _, method := range []string{"FetchJWTSVID", "ValidateJWTSVID"} {
		if err := open[workloadv1.JWTSVIDResponse](c, method, calls[method]).end(); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// A client replaces all that it has by each reply. An empty set for a trust domain whose keys are
// not known here would mean that there are none.
func TestJWTBundlesWithoutKeysAreEmptyForOwnTrustDomainsAlone(t *testing.T) {
	source := ready(t)
	foreign := bundle(catest.NewCA(catest.Options{}), "foreign")
	source.Put(foreign)
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{Federated: map[string]string{"example.com": "foreign"}}})
	bundles := open[workloadv1.JWTBundlesResponse](c, "FetchJWTBundles", calls["FetchJWTBundles"])
	want := map[string][]byte{"spiffe://example.org": []byte(`{"keys":[]}`)}
	if got := bundles.get().GetBundles(); !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("got %q", got)
	}
}

func TestCallerWithoutIdentityIsDenied(t *testing.T) {
	source := ready(t)
	source.Forget("default")
	_, c := start(t, source, workloadapi.Config{})
	for _, err := range []error{c.svids().end(), c.bundles().end()} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	}
}

func TestStreamLosingLastIdentityIsDenied(t *testing.T) {
	source := ready(t)
	_, c := start(t, source, workloadapi.Config{})
	svids := c.svids()
	svids.get()
	source.Forget("default")
	if err := svids.end(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

func TestEndedSourceEndsStreamsWithUnavailable(t *testing.T) {
	source := ready(t)
	_, c := start(t, source, workloadapi.Config{})
	svids := c.svids()
	svids.get()
	source.Fail(secret.ErrClosed)
	if err := svids.end(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if err := c.svids().end(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new one: %v", err)
	}
}

func TestNewPolicyEndsForbiddenStreams(t *testing.T) {
	source := ready(t)
	server, c := start(t, source, workloadapi.Config{})
	svids := c.svids()
	svids.get()
	if n := server.SetPolicy(unixpeer.Policy{UIDs: []uint32{1}}); n != 0 {
		t.Errorf("%d streams were ended by a policy that admits them", n)
	}
	nobody := unixpeer.Policy{Refuse: func(unixpeer.Peer) error { return errors.New("not today") }}
	if n := server.SetPolicy(nobody); n != 1 {
		t.Errorf("%d streams were ended, want 1", n)
	}
	for _, err := range []error{svids.end(), c.svids().end()} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	}
	if n := server.Streams(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

func TestCloseEndsStreamsWithUnavailable(t *testing.T) {
	source := ready(t)
	server, c := start(t, source, workloadapi.Config{})
	svids := c.svids()
	svids.get()
	closed := make(chan error, 1)
	go func() { closed <- server.Close(context.Background()) }()
	if err := svids.end(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n := source.Watchers(); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// The policy changes while a caller is being admitted by the one before.
func TestCallerAdmittedByOldPolicyIsSentAway(t *testing.T) {
	var service *workloadapi.Service
	first := true
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{
		Secrets: ready(t),
		Admit: func(context.Context) (secret.Caller, error) {
			if first {
				first = false
				service.End(func(secret.Caller) bool { return true }, status.Error(codes.PermissionDenied, "gone"))
			}
			return secret.Caller{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := serveOn(t, service)
	if err := c.svids().end(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	c.svids().get()
}
