package workloadapi_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// wits is a WITSource with tokens by SPIFFE ID.
type wits struct {
	mu       sync.Mutex
	held     map[string]string
	keys     []byte
	missing  bool
	life     time.Duration
	next     int
	watchers map[int]func()
	follows  map[string]int
}

func newWITs(held map[string]string) *wits {
	return &wits{held: held, keys: []byte("keys"), life: time.Hour, watchers: map[int]func(){}, follows: map[string]int{}}
}

func (w *wits) Follow(id string, notify func()) (func(), error) {
	w.mu.Lock()
	w.follows[id]++
	w.mu.Unlock()
	stop := w.Watch(notify)
	return func() {
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.follows[id]--
	}, nil
}

func (w *wits) Held(id string) (ca.Token, []byte, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch token := w.held[id]; {
	case w.missing:
		return "", nil, time.Time{}, ca.Errorf(ca.Unimplemented, "none")
	case token == "":
		return "", nil, time.Time{}, ca.Errorf(ca.Unavailable, "not yet")
	default:
		return ca.Token(token), []byte("key of " + token), time.Now().Add(w.life), nil
	}
}

func (w *wits) Keys() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing && w.keys == nil {
		return []byte(`{"keys":[]}`)
	}
	return w.keys
}

func (w *wits) Missing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missing
}

func (w *wits) Watch(notify func()) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	id := w.next
	w.watchers[id] = notify
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, id)
	}
}

// change changes something and notifies.
func (w *wits) change(f func()) {
	w.mu.Lock()
	f()
	all := slices.Collect(maps.Values(w.watchers))
	w.mu.Unlock()
	for _, notify := range all {
		notify()
	}
	synctest.Wait()
}

const (
	webID   = "spiffe://example.org/web"
	outerID = "spiffe://example.org/outer"
)

func witService(t *testing.T, w workloadapi.WITSource) *workloadapi.Service {
	t.Helper()
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{
		Secrets: twoIdentities(t), Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
		Offer: workloadapi.Offer{Identities: []workloadapi.Identity{of("default", "internal"), of("outer", "external")}, WIT: w},
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// witStream follows the WIT-SVIDs; ended has the status in the end.
func witStream(t *testing.T, service *workloadapi.Service, id string) (to *recorded[workloadv1.WITSVIDResponse], ended <-chan error, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(asWorkload(t))
	to = &recorded[workloadv1.WITSVIDResponse]{ctx: ctx}
	end := make(chan error, 1)
	go func() { end <- service.FetchWITSVID(&workloadv1.WITSVIDRequest{SpiffeId: id}, to) }()
	synctest.Wait()
	return to, end, cancel
}

func shown(all []*workloadv1.WITSVIDResponse) string {
	var replies []string
	for _, reply := range all {
		var one []string
		for _, svid := range reply.GetSvids() {
			one = append(one, fmt.Sprintf("%s %s %s", svid.GetWitSvid(), svid.GetWitSvidKey(), svid.GetHint()))
		}
		replies = append(replies, strings.Join(one, ", "))
	}
	return strings.Join(replies, "; ")
}

func TestWITSVIDsAreSentAgainWhenOneChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWITs(map[string]string{webID: "a"})
		to, ended, cancel := witStream(t, witService(t, w), "")
		w.change(func() {})
		w.change(func() { w.held[outerID] = "b" })
		w.change(func() { w.held[webID] = "c" })
		if got, want := shown(to.replies()), "a key of a internal; a key of a internal, b key of b external; c key of c internal, b key of b external"; got != want {
			t.Errorf("got %s", got)
		}
		cancel()
		<-ended
		if len(w.watchers) != 0 || w.follows[webID] != 0 || w.follows[outerID] != 0 {
			t.Errorf("left: %d watchers, %v", len(w.watchers), w.follows)
		}
	})
}

func TestWITSVIDOfOneIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWITs(map[string]string{outerID: "b"})
		service := witService(t, w)
		to, ended, cancel := witStream(t, service, outerID)
		if got := shown(to.replies()); got != "b key of b external" || w.follows[webID] != 0 {
			t.Errorf("got %s, followed %v", got, w.follows)
		}
		cancel()
		<-ended
		_, ended, _ = witStream(t, service, "spiffe://example.org/other")
		if err := <-ended; status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
	})
}

func TestWITSVIDOfDefaultIdentityComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWITs(map[string]string{outerID: "b"})
		to, ended, cancel := witStream(t, witService(t, w), "")
		if got := shown(to.replies()); got != "" {
			t.Errorf("got %s", got)
		}
		w.change(func() { w.held[webID] = "a" })
		if got := shown(to.replies()); got != "a key of a internal, b key of b external" {
			t.Errorf("got %s", got)
		}
		cancel()
		<-ended
	})
}

func TestWITSVIDThatDoesNotComeIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ended, _ := witStream(t, witService(t, newWITs(nil)), "")
		if err := <-ended; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}

func TestWITSVIDsAreUnimplementedWithoutExperimentOrAbility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unable := newWITs(nil)
		unable.missing, unable.keys = true, nil
		for name, service := range map[string]*workloadapi.Service{"experiment": witService(t, nil), "ability": witService(t, unable)} {
			_, ended, _ := witStream(t, service, "")
			if err := <-ended; status.Code(err) != codes.Unimplemented {
				t.Errorf("no %s: %v", name, err)
			}
			err := service.FetchWITBundles(nil, &recorded[workloadv1.WITBundlesResponse]{ctx: asWorkload(t)})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("no %s: bundles: %v", name, err)
			}
		}
	})
}

func TestWITCallsNeedTheHeader(t *testing.T) {
	service := witService(t, newWITs(nil))
	err := service.FetchWITSVID(&workloadv1.WITSVIDRequest{}, &recorded[workloadv1.WITSVIDResponse]{ctx: t.Context()})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

func TestWITBundlesFollowTheKeysAndAreNotThoseOfJWTs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWITs(nil)
		service := witService(t, w)
		bundles := follow(t, func(to grpc.ServerStreamingServer[workloadv1.WITBundlesResponse]) error {
			return service.FetchWITBundles(&workloadv1.WITBundlesRequest{}, to)
		})
		jwts := follow(t, func(to grpc.ServerStreamingServer[workloadv1.JWTBundlesResponse]) error {
			return service.FetchJWTBundles(&workloadv1.JWTBundlesRequest{}, to)
		})
		w.change(func() { w.keys = []byte("others") })
		var got []string
		for _, reply := range bundles.replies() {
			got = append(got, fmt.Sprint(reply.GetBundles()))
		}
		if want := []string{"map[spiffe://example.org:keys]", "map[spiffe://example.org:others]"}; !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		w.change(func() { w.missing = true }) // WIT-SVIDs that are held are good for a while
		over, cancel := context.WithCancel(asWorkload(t))
		cancel()
		if err := service.FetchWITBundles(nil, &recorded[workloadv1.WITBundlesResponse]{ctx: over}); status.Code(err) != codes.Canceled {
			t.Errorf("keys of an authority that lost its ability: %v", err)
		}
		if all := jwts.replies(); len(all) != 1 || string(all[0].GetBundles()["spiffe://example.org"]) != `{"keys":[]}` {
			t.Errorf("JWT bundles: %v", all)
		}
	})
}

func TestWITBundlesOfFederatedTrustDomainsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, f := twoIdentities(t), &foreign{keys: map[string]string{"example.org": "not ours", "stranger.example": "no"}}
		source.Empty("PARTNER")
		w := newWITs(nil)
		service, err := workloadapi.NewService(workloadapi.ServiceConfig{
			Secrets: source, Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil },
			Offer: workloadapi.Offer{
				Identities: []workloadapi.Identity{of("default", "internal")},
				Federated:  map[string]string{"partner.example": "PARTNER", "example.org": "PARTNER"}, WIT: w, FederatedWIT: f,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		bundles := follow(t, func(to grpc.ServerStreamingServer[workloadv1.WITBundlesResponse]) error {
			return service.FetchWITBundles(&workloadv1.WITBundlesRequest{}, to)
		})
		time.Sleep(5 * time.Second) // the partner's keys may never come
		synctest.Wait()
		f.put("partner.example", "first")
		synctest.Wait()
		w.change(func() { w.keys = nil; w.missing = true }) // who signs none may verify
		var got []string
		for _, reply := range bundles.replies() {
			got = append(got, fmt.Sprint(reply.GetBundles()))
		}
		if want := []string{
			"map[spiffe://example.org:keys]", "map[spiffe://example.org:keys spiffe://partner.example:first]",
			`map[spiffe://example.org:{"keys":[]} spiffe://partner.example:first]`,
		}; !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}
