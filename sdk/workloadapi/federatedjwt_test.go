package workloadapi_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// foreign has the keys of trust domains. Its tokens are a trust domain and a word.
type foreign struct {
	mu     sync.Mutex
	keys   map[string]string
	notify func()
}

func (f *foreign) Keys(trustDomain string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keys, ok := f.keys[trustDomain]; ok {
		return []byte(keys)
	}
	return nil
}

func (f *foreign) DomainOf(token ca.Token) string {
	domain, _, _ := strings.Cut(token.Reveal(), " ")
	return domain
}

func (f *foreign) Validate(token ca.Token, audience, trustDomain string) (string, map[string]any, error) {
	if token.Reveal() != trustDomain+" good" {
		return "", nil, ca.Errorf(ca.Invalid, "refused")
	}
	return "spiffe://" + trustDomain + "/web", map[string]any{"aud": audience}, nil
}

func (f *foreign) Watch(notify func()) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify = notify
	return func() {}
}

func (f *foreign) put(domain, keys string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[domain] = keys
	f.notify()
}

// federatedService is jwtService with the keys of partner.example; j may be nil.
func federatedService(t *testing.T, source secret.Source, j workloadapi.JWTSource, f *foreign) *workloadapi.Service {
	t.Helper()
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{
		Secrets: source, Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
		Offer: workloadapi.Offer{
			Identities: []workloadapi.Identity{of("default", "internal"), of("outer", "external")},
			Federated:  map[string]string{"partner.example": "PARTNER", "example.org": "PARTNER"}, JWT: j, FederatedJWT: f,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func TestJWTBundlesOfFederatedTrustDomainsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, own, f := twoIdentities(t), newJWTs("own"), &foreign{keys: map[string]string{"stranger.example": "no", "example.org": "not ours"}}
		source.Empty("PARTNER") // it may have keys of JWT-SVIDs alone
		ctx, cancel := context.WithCancel(asWorkload(t))
		defer cancel()
		to := &recorded[workloadv1.JWTBundlesResponse]{ctx: ctx}
		service := federatedService(t, source, own, f)
		go func() { _ = service.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, to) }()
		replies := 0
		last := func(want map[string]string) {
			t.Helper()
			synctest.Wait()
			if replies++; len(to.sent) != replies {
				t.Fatalf("%d replies, want %d", len(to.sent), replies)
			}
			got := map[string]string{}
			for domain, keys := range to.sent[replies-1].GetBundles() {
				got[domain] = string(keys)
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		time.Sleep(5 * time.Second)
		last(map[string]string{"spiffe://example.org": "own"})
		f.put("partner.example", "first")
		last(map[string]string{"spiffe://example.org": "own", "spiffe://partner.example": "first"})
		f.put("partner.example", "second")
		last(map[string]string{"spiffe://example.org": "own", "spiffe://partner.example": "second"})
	})
}

func TestTokensOfFederatedTrustDomainsAreValidated(t *testing.T) {
	f := &foreign{keys: map[string]string{"partner.example": "keys"}}
	for name, j := range map[string]workloadapi.JWTSource{"with JWT-SVIDs": newJWTs("own"), "without": nil} {
		service := federatedService(t, twoIdentities(t), j, f)
		for token, want := range map[string]codes.Code{
			"partner.example good": codes.OK, "partner.example bad": codes.InvalidArgument, "stranger.example good": codes.InvalidArgument,
			"example.org good": codes.InvalidArgument, "": codes.InvalidArgument, // our own source does not know them
		} {
			reply, err := service.ValidateJWTSVID(asWorkload(t), &workloadv1.ValidateJWTSVIDRequest{Svid: token, Audience: "db"})
			if status.Code(err) != want || err == nil && (reply.GetSpiffeId() != "spiffe://partner.example/web" || reply.GetClaims().AsMap()["aud"] != "db") {
				t.Errorf("%s, %q: %v, %v", name, token, reply, err)
			}
		}
		if _, err := service.ValidateJWTSVID(t.Context(), &workloadv1.ValidateJWTSVIDRequest{Svid: "partner.example good", Audience: "db"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("no header: %v", err)
		}
		_, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"db"}})
		if want := map[bool]codes.Code{true: codes.Unimplemented, false: codes.OK}[j == nil]; status.Code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFederatedTrustDomainsAreOfCallersThatMayHaveThem(t *testing.T) {
	source := twoIdentities(t)
	source.Forget("PARTNER")
	service := federatedService(t, source, nil, &foreign{keys: map[string]string{"partner.example": "keys"}})
	if _, err := service.ValidateJWTSVID(asWorkload(t), &workloadv1.ValidateJWTSVIDRequest{Svid: "partner.example good", Audience: "db"}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
