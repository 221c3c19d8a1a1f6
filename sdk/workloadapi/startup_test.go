package workloadapi_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// follow opens a stream whose replies are read in the test, which ends it.
func follow[M any](t *testing.T, call func(grpc.ServerStreamingServer[M]) error) *recorded[M] {
	t.Helper()
	ctx, cancel := context.WithCancel(asWorkload(t))
	to := &recorded[M]{ctx: ctx}
	ended := make(chan error, 1)
	go func() { ended <- call(to) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return to
}

// trustDomains are those of all replies.
func trustDomains[M any](to *recorded[M], of func(*M) map[string][]byte) (all [][]string) {
	for _, reply := range to.replies() {
		all = append(all, slices.Sorted(maps.Keys(of(reply))))
	}
	return all
}

// streams are one of each kind, and what all replies to them have of foreign trust domains.
func streams(t *testing.T, service *workloadapi.Service) map[string]func() [][]string {
	svids := follow(t, func(to grpc.ServerStreamingServer[workloadv1.X509SVIDResponse]) error {
		return service.FetchX509SVID(&workloadv1.X509SVIDRequest{}, to)
	})
	bundles := follow(t, func(to grpc.ServerStreamingServer[workloadv1.X509BundlesResponse]) error {
		return service.FetchX509Bundles(&workloadv1.X509BundlesRequest{}, to)
	})
	keys := follow(t, func(to grpc.ServerStreamingServer[workloadv1.JWTBundlesResponse]) error {
		return service.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, to)
	})
	foreign := func(all [][]string) [][]string {
		for i := range all {
			all[i] = slices.DeleteFunc(all[i], func(domain string) bool { return domain == "spiffe://example.org" })
		}
		return all
	}
	return map[string]func() [][]string{
		"X.509-SVIDs": func() [][]string {
			return foreign(trustDomains(svids, (*workloadv1.X509SVIDResponse).GetFederatedBundles))
		},
		"X.509 bundles": func() [][]string { return foreign(trustDomains(bundles, (*workloadv1.X509BundlesResponse).GetBundles)) },
		"JWT bundles":   func() [][]string { return foreign(trustDomains(keys, (*workloadv1.JWTBundlesResponse).GetBundles)) },
	}
}

func want(t *testing.T, streams map[string]func() [][]string, replies ...[]string) {
	t.Helper()
	for kind, got := range streams {
		if got := got(); !slices.EqualFunc(got, replies, slices.Equal) {
			t.Errorf("%s: got %v, want %v", kind, got, replies)
		}
	}
}

const partner = "spiffe://partner.example"

// A client with the bundles of foreign trust domains comes back after the agent's restart. It drops
// what the first reply lacks.
func TestFirstReplyHasForeignBundlesThatComeSoonAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, f := twoIdentities(t), &foreign{keys: map[string]string{"example.org": "not ours"}}
		source.Empty("PARTNER")
		service := federatedService(t, source, newJWTs("own"), f)
		open := streams(t, service)
		time.Sleep(4 * time.Second)
		want(t, open)
		source.Put(bundle(catest.NewCA(catest.Options{}), "PARTNER"))
		f.put("partner.example", "keys")
		want(t, open, []string{partner})
	})
}

func TestForeignBundlesAreNotAwaitedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, f := twoIdentities(t), &foreign{keys: map[string]string{"example.org": "not ours"}}
		source.Empty("PARTNER")
		service := federatedService(t, source, newJWTs("own"), f)
		early := streams(t, service)
		time.Sleep(5*time.Second - 1)
		want(t, early)
		time.Sleep(time.Nanosecond)
		want(t, early, []string{})
		late := streams(t, service)
		want(t, late, []string{}) // long after the start, an outage delays no caller
	})
}

// A stream that has been answered goes on while a foreign bundle is missing again.
func TestForeignBundleThatIsLostEndsNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, f := twoIdentities(t), &foreign{keys: map[string]string{"example.org": "not ours", "partner.example": "keys"}}
		source.Put(bundle(catest.NewCA(catest.Options{}), "PARTNER"))
		service := federatedService(t, source, newJWTs("own"), f)
		svids := streams(t, service)["X.509-SVIDs"]
		source.Empty("PARTNER")
		open := map[string]func() [][]string{"X.509-SVIDs": svids}
		want(t, open, []string{partner}, []string{})
	})
}

// Its own roots and keys are in the reply, whichever source has others of the same trust domain.
func TestFirstReplyDoesNotWaitForTheCallersOwnTrustDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := twoIdentities(t)
		source.Empty("OURS")
		service, err := workloadapi.NewService(workloadapi.ServiceConfig{
			Secrets: source, Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
			Offer: workloadapi.Offer{
				Identities: []workloadapi.Identity{of("default", "internal")},
				Federated:  map[string]string{"example.org": "OURS"}, JWT: newJWTs("own"), FederatedJWT: &foreign{},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, streams(t, service), []string{})
	})
}

// After a restart, the second identity may come a moment later than the first.
func TestJWTSVIDsWaitForAllIdentitiesSoonAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		source := secrettest.New(keyPair(t, authority, "default", "spiffe://example.org/web"), bundle(authority, "ROOTCA"))
		source.Empty("outer", "PARTNER")
		service := jwtService(t, source, newJWTs("own"))
		fetch := func(id string) (n int, took time.Duration) {
			began := time.Now()
			reply, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}, SpiffeId: id})
			if err != nil {
				t.Error(err)
			}
			return len(reply.GetSvids()), time.Since(began)
		}
		if n, took := fetch("spiffe://example.org/web"); n != 1 || took != 0 {
			t.Errorf("%d of the identity that is there after %s", n, took)
		}
		time.AfterFunc(time.Second, func() { source.Put(keyPair(t, authority, "outer", "spiffe://example.org/out")) })
		if n, took := fetch(""); n != 2 || took != time.Second {
			t.Errorf("%d identities after %s", n, took)
		}
		time.Sleep(time.Minute)
		source.Empty("outer")
		if n, took := fetch(""); n != 1 || took != 0 {
			t.Errorf("%d identities after %s long after the start", n, took)
		}
	})
}
