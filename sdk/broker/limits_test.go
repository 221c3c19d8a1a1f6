package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/internal/workload"
)

// A stream that waits for its turn costs memory, too.
func TestStreamsThatWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount("spiffe://example.org/proxy")
		a.permit([]Reference{PID})
		s := &Server{accounts: map[string]*account{a.id: a}, resolvers: map[Reference]Resolver{PID: Processes{}}, log: slog.New(slog.DiscardHandler)}
		for range maxAtOnce {
			leave, err := a.wait(t.Context(), fingerprint{})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		id := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/proxy"}
		ctx, cancel := context.WithTimeout(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{SPIFFEID: id}}), time.Minute)
		defer cancel()
		ask := func() error {
			reference := &broker.WorkloadReference{Reference: &anypb.Any{TypeUrl: "type.googleapis.com/" + string(PID)}}
			return s.serve(ctx, reference, func(ctx context.Context, _ *call) error { _, err := workload.Admit(ctx); return err })
		}
		var waiting sync.WaitGroup
		for range maxStreams {
			waiting.Go(func() { _ = ask() })
		}
		synctest.Wait()
		if err := ask(); !errors.Is(err, errStreams) {
			t.Error(err)
		}
		cancel()
		waiting.Wait()
		if len(a.open) != 0 {
			t.Errorf("%d streams are left", len(a.open))
		}
	})
}

// numbered has so many references.
type numbered struct {
	Resolver
	n int
}

func (n numbered) Numbers() int { return n.n }

// A process whose children have ended when its broker asks for them uses up no more than this.
func TestScanOfAllReferencesTakesThreeHours(t *testing.T) {
	for n, wait := range map[int]time.Duration{0: time.Second, 32_768: 331 * time.Millisecond, 4_194_304: 3 * time.Millisecond} {
		rate, now := searchRate(numbered{n: n}), time.Now()
		a := newAccount("broker")
		for i := range byte(missedBurst) {
			if err := a.begin(PID, fingerprint{i}, rate, now); err != nil {
				t.Fatal(err)
			}
			a.miss(PID, fingerprint{i}, now)
		}
		other := fingerprint{0xff}
		if err := a.begin(PID, other, rate, now.Add(wait-wait/3)); !errors.Is(err, errMissed) {
			t.Errorf("of %d: %v", n, err)
		}
		if err := a.begin(PID, other, rate, now.Add(wait)); err != nil {
			t.Errorf("of %d, after %s: %v", n, wait, err)
		}
	}
	if rate := searchRate(Processes{}); rate < 1 || rate > 400 {
		t.Errorf("%g PIDs a second", rate)
	}
}

func TestMissedProcessesLeaveThePodsTheirs(t *testing.T) {
	a, now := newAccount("broker"), time.Now()
	for i := range byte(missedBurst) {
		a.miss(PID, fingerprint{i}, now)
	}
	if err := a.begin(PID, fingerprint{0xff}, 1, now); !errors.Is(err, errMissed) {
		t.Error(err)
	}
	if err := a.begin(Kubernetes, fingerprint{0xff}, 1, now); err != nil {
		t.Error(err)
	}
}

func TestCallsOfOneIdentityLeaveOthersTheirs(t *testing.T) {
	a, now := newAccount("broker"), time.Now()
	for range identityBurst {
		if err := a.spend("web", now); err != nil {
			t.Fatal(err)
		}
	}
	for range callsBurst { // would use up the broker's
		if err := a.spend("web", now); !errors.Is(err, errOfIdentity) {
			t.Fatal(err)
		}
	}
	for range identityBurst {
		if err := a.spend("db", now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range callsBurst - 2*identityBurst {
		if err := a.spend(strconv.Itoa(i), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.spend("last", now); !errors.Is(err, errCalls) {
		t.Error(err)
	}
}

// Identities with many processes find no end of streams, and leave some for others.
func TestStreamsOfOneIdentityLeaveOthersTheirs(t *testing.T) {
	a := newAccount("broker")
	open := func(id string) (n int) {
		for ; ; n++ {
			if _, err := a.enter(&call{reference: &anypb.Any{}}); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if _, err := a.take(Workload{SPIFFEID: id, Name: fmt.Sprint(id, n)}); err != nil {
				if !errors.Is(err, errOfIdentity) {
					t.Errorf("%s: %v", id, err)
				}
				return n
			}
		}
	}
	for id, want := range []int{maxStreams / 2, maxStreams / 4, maxStreams / 8} {
		if n := open(strconv.Itoa(id)); n < want-3 || n > want {
			t.Errorf("%d streams of identity %d; want about %d", n, id, want)
		}
	}
}
