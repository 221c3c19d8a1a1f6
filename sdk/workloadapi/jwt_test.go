package workloadapi_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// jwts is a JWTSource whose tokens say what was asked for.
type jwts struct {
	fetch func(ctx context.Context) error

	mu       sync.Mutex
	keys     []byte
	watchers map[int]func()
	asked    int
}

func newJWTs(keys string) *jwts {
	return &jwts{keys: []byte(keys), watchers: map[int]func(){}, fetch: func(context.Context) error { return nil }}
}

func (j *jwts) Fetch(ctx context.Context, id string, audiences []string) (ca.Token, error) {
	return ca.Token(id + " for " + strings.Join(audiences, ",")), j.fetch(ctx)
}

func (j *jwts) Validate(token ca.Token, audience string, trustDomains []string) (string, map[string]any, error) {
	if token != "good" {
		return "", nil, ca.Errorf(ca.Invalid, "refused")
	}
	return "spiffe://example.org/web", map[string]any{"aud": audience, "domains": fmt.Sprint(trustDomains)}, nil
}

func (j *jwts) Keys() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keys
}

func (j *jwts) Watch(notify func()) func() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	id := j.asked
	j.watchers[id] = notify
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.watchers, id)
	}
}

func (j *jwts) put(keys string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keys = []byte(keys)
	for _, notify := range j.watchers {
		notify()
	}
}

// jwtService serves two identities and a federated bundle to the user 1.
func jwtService(t *testing.T, source secret.Source, j workloadapi.JWTSource) *workloadapi.Service {
	t.Helper()
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{
		Secrets: source, Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
		Offer: workloadapi.Offer{
			Identities: []workloadapi.Identity{of("default", "internal"), of("outer", "external")}, Federated: map[string]string{"partner.example": "PARTNER"}, JWT: j,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func twoIdentities(t *testing.T) *secrettest.Source {
	t.Helper()
	ours := catest.NewCA(catest.Options{})
	return secrettest.New(keyPair(t, ours, "default", "spiffe://example.org/web"), keyPair(t, ours, "outer", "spiffe://example.org/outer"),
		bundle(ours, "ROOTCA"), bundle(catest.NewCA(catest.Options{}), "PARTNER"))
}

func asWorkload(t *testing.T) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs("workload.spiffe.io", "true"))
}

func TestJWTSVIDsOfAllIdentitiesOrOfTheOneAskedFor(t *testing.T) {
	service := jwtService(t, twoIdentities(t), newJWTs("keys"))
	for id, want := range map[string][]string{
		"": {"spiffe://example.org/web for a,b internal", "spiffe://example.org/outer for a,b external"}, "spiffe://example.org/outer": {"spiffe://example.org/outer for a,b external"},
	} {
		reply, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a", "b"}, SpiffeId: id})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, svid := range reply.GetSvids() {
			got = append(got, svid.GetSvid()+" "+svid.GetHint())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestAnothersJWTSVIDIsDenied(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	source := twoIdentities(t)
	service := jwtService(t, source, newJWTs("keys"))
	ask := func(id string, audiences ...string) error {
		_, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: audiences, SpiffeId: id})
		return err
	}
	if err := ask("spiffe://example.org/admin", "a"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	if err := ask(""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no audience: %v", err)
	}
	if _, err := service.FetchJWTSVID(t.Context(), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no header: %v", err)
	}
	source.Empty("outer") // whose SPIFFE ID is not known now
	if err := ask("spiffe://example.org/outer", "a"); status.Code(err) != codes.Unavailable {
		t.Errorf("not there yet: %v", err)
	}
}

func TestErrorOfJWTSourceIsItsStatus(t *testing.T) {
	j := newJWTs("keys")
	service := jwtService(t, twoIdentities(t), j)
	for reason, want := range map[ca.Reason]codes.Code{
		ca.Denied: codes.PermissionDenied, ca.Invalid: codes.InvalidArgument, ca.Unavailable: codes.Unavailable, ca.RateLimited: codes.ResourceExhausted,
		ca.Unauthenticated: codes.Unavailable, ca.Internal: codes.Unavailable, ca.Unimplemented: codes.Unimplemented, ca.Unknown: codes.Unavailable,
	} {
		j.fetch = func(context.Context) error { return ca.Errorf(reason, "no\n%s", strings.Repeat("x", 1000)) }
		reply, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}})
		if status.Code(err) != want || reply != nil || len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestRefusedCallerIsLoggedOnceAMinute(t *testing.T) {
	j := newJWTs("keys")
	j.fetch = func(context.Context) error { return ca.Errorf(ca.Denied, "no") }
	var log logtest.Log
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{
		Secrets: twoIdentities(t), Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
		Offer: workloadapi.Offer{Identities: []workloadapi.Identity{of("default", "internal")}, JWT: j}, Log: log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		_, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{strconv.Itoa(i)}})
		if status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "no JWT-SVID for a caller"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func TestJWTBundlesFollowTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJWTs("one")
		service := jwtService(t, twoIdentities(t), j)
		ctx, cancel := context.WithCancel(asWorkload(t))
		to := &recorded[workloadv1.JWTBundlesResponse]{ctx: ctx}
		ended := make(chan error, 1)
		go func() { ended <- service.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, to) }()
		synctest.Wait()
		j.put("one")
		synctest.Wait()
		j.put("two")
		synctest.Wait()
		if len(to.sent) != 2 {
			t.Fatalf("%d replies", len(to.sent))
		}
		for i, keys := range []string{"one", "two"} {
			want := map[string][]byte{"spiffe://example.org": []byte(keys)}
			if got := to.sent[i].GetBundles(); !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("reply %d: %q", i, got)
			}
		}
		cancel()
		<-ended
		if len(j.watchers) != 0 {
			t.Errorf("%d watchers are left", len(j.watchers))
		}
	})
}

func TestJWTBundlesWaitForKeysAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJWTs("")
		j.keys = nil
		service := jwtService(t, twoIdentities(t), j)
		to := &recorded[workloadv1.JWTBundlesResponse]{ctx: asWorkload(t)}
		if err := service.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, to); status.Code(err) != codes.Unavailable || len(to.sent) > 0 {
			t.Errorf("%v after %d replies", err, len(to.sent))
		}
	})
}

func TestValidationAcceptsOwnTrustDomains(t *testing.T) {
	service := jwtService(t, twoIdentities(t), newJWTs("keys"))
	reply, err := service.ValidateJWTSVID(asWorkload(t), &workloadv1.ValidateJWTSVIDRequest{Audience: "a", Svid: "good"})
	if err != nil {
		t.Fatal(err)
	}
	claims := reply.GetClaims().AsMap()
	if reply.GetSpiffeId() != "spiffe://example.org/web" || claims["aud"] != "a" || claims["domains"] != "[example.org example.org]" {
		t.Errorf("%v", reply)
	}
	if _, err := service.ValidateJWTSVID(asWorkload(t), &workloadv1.ValidateJWTSVIDRequest{Audience: "a", Svid: "bad"}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

func TestJWTSVIDWaitsForTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := twoIdentities(t)
		items := source.Items()
		source.Empty("default")
		service := jwtService(t, source, newJWTs("keys"))
		go func() { time.Sleep(3 * time.Second); source.Put(items["default"]) }()
		if _, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}}); err != nil {
			t.Error(err)
		}
		source.Empty("default")
		if _, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}}); status.Code(err) != codes.Unavailable {
			t.Errorf("without a certificate: %v", err)
		}
	})
}

func TestOneUserDoesNotTakeAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy, refused atomic.Int32
		j := newJWTs("keys")
		j.fetch = func(ctx context.Context) error { busy.Add(1); <-ctx.Done(); return ca.ErrCanceled }
		service := jwtService(t, twoIdentities(t), j)
		ctx, cancel := context.WithCancel(asWorkload(t))
		var all sync.WaitGroup
		for range 1200 {
			all.Go(func() {
				_, err := service.FetchJWTSVID(ctx, &workloadv1.JWTSVIDRequest{Audience: []string{"a"}})
				if status.Code(err) == codes.ResourceExhausted {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if busy.Load() != 16 || refused.Load() != 1200-1016 {
			t.Errorf("%d at once, %d refused", busy.Load(), refused.Load())
		}
		time.Sleep(31 * time.Second)
		if refused.Load() != 1200-16 {
			t.Errorf("%d refused after a while", refused.Load())
		}
		cancel()
		all.Wait()
		time.Sleep(time.Minute) // the calls of the authority end
		j.fetch = func(context.Context) error { return nil }
		if _, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// The authority's call goes on when its caller has left, so it keeps its place.
func TestCallersThatLeaveDoNotMakeRoomForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		j := newJWTs("keys")
		j.fetch = func(ctx context.Context) error { begun.Add(1); <-ctx.Done(); return ca.ErrCanceled }
		service := jwtService(t, twoIdentities(t), j)
		for range 100 {
			ctx, cancel := context.WithCancel(asWorkload(t))
			ended := make(chan error, 1)
			go func() {
				_, err := service.FetchJWTSVID(ctx, &workloadv1.JWTSVIDRequest{Audience: []string{"a"}})
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-ended; err == nil {
				t.Error("a token")
			}
		}
		if n := begun.Load(); n != 16 {
			t.Errorf("%d calls were begun, want 16", n)
		}
		time.Sleep(time.Minute)
	})
}

func TestJWTSVIDIsNotWaitedForOnceThePolicyOrTheServiceEnds(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "no more")
	for want, end := range map[codes.Code]func(*workloadapi.Service){
		codes.PermissionDenied: func(s *workloadapi.Service) { s.End(func(secret.Caller) bool { return true }, denied) },
		codes.Unavailable:      (*workloadapi.Service).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJWTs("keys")
			j.fetch = func(ctx context.Context) error { <-ctx.Done(); return ca.ErrCanceled }
			service := jwtService(t, twoIdentities(t), j)
			began, ended := time.Now(), make(chan error, 1)
			go func() {
				_, err := service.FetchJWTSVID(asWorkload(t), &workloadv1.JWTSVIDRequest{Audience: []string{"a"}})
				ended <- err
			}()
			synctest.Wait()
			end(service)
			if err := <-ended; status.Code(err) != want || time.Since(began) > 0 {
				t.Errorf("after %s it ends with %v, want %s", time.Since(began), err, want)
			}
			time.Sleep(time.Minute) // the work ends
		})
	}
}
