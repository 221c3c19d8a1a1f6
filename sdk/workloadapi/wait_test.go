package workloadapi_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// recorded is the server's side of a stream, in memory.
type recorded[M any] struct {
	grpc.ServerStream
	ctx  context.Context
	mu   sync.Mutex // for a test that reads before a timer has the service send
	sent []*M
}

func (r *recorded[M]) Context() context.Context { return r.ctx }

func (r *recorded[M]) Send(m *M) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, m)
	return nil
}

// replies returns what was sent so far.
func (r *recorded[M]) replies() []*M {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// fetch opens a stream of X.509-SVIDs; end waits for its end.
func fetch(t *testing.T, source secret.Source, clock ...func() time.Time) (to *recorded[workloadv1.X509SVIDResponse], end func() error) {
	t.Helper()
	service, err := workloadapi.NewService(workloadapi.ServiceConfig{Secrets: source,
		Admit: func(context.Context) (secret.Caller, error) { return secret.Caller{ID: "uid:1"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range clock {
		service.SetClock(now)
	}
	to = &recorded[workloadv1.X509SVIDResponse]{ctx: metadata.NewIncomingContext(t.Context(), metadata.Pairs("workload.spiffe.io", "true"))}
	ended := make(chan error, 1)
	go func() { ended <- service.FetchX509SVID(&workloadv1.X509SVIDRequest{}, to) }()
	synctest.Wait()
	return to, func() error { return <-ended }
}

func TestStreamThatGetsNothingEndsAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New()
		source.Empty("default", "ROOTCA")
		began := time.Now()
		to, end := fetch(t, source)
		if err := end(); status.Code(err) != codes.Unavailable || len(to.sent) > 0 {
			t.Errorf("got %v after %d replies", err, len(to.sent))
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestStreamWhoseCertificateComesInTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := secrettest.New()
		source.Empty("default", "ROOTCA")
		to, end := fetch(t, source)
		time.Sleep(4 * time.Second)
		authority := catest.NewCA(catest.Options{})
		pair := keyPair(t, authority, "default", "spiffe://example.org/web")
		source.Put(pair, bundle(authority, "ROOTCA"))
		time.Sleep(time.Minute)
		if synctest.Wait(); len(to.sent) != 1 {
			t.Fatalf("%d replies", len(to.sent))
		}
		source.Put(bundle(catest.NewCA(catest.Options{}), "ROOTCA"))
		if synctest.Wait(); len(to.sent) != 2 {
			t.Errorf("%d replies", len(to.sent))
		}
		source.Forget("default")
		if err := end(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	})
}

func TestStreamEndsWhenItsCertificateExpires(t *testing.T) {
	for _, life := range []time.Duration{2 * time.Second, time.Hour} { // the shorter is less than a first wait
		synctest.Test(t, func(t *testing.T) {
			authority := catest.NewCA(catest.Options{TTL: life})
			pair := keyPair(t, authority, "default", "spiffe://example.org/web")
			source := expiring{secrettest.New(pair, bundle(authority, "ROOTCA")), time.Now().Add(life)}
			began := time.Now()
			to, end := fetch(t, source)
			if err := end(); status.Code(err) != codes.Unavailable || len(to.sent) != 1 {
				t.Errorf("got %v after %d replies", err, len(to.sent))
			}
			if took := time.Since(began); took < life || took > life+2*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A Manager's pair ends with the first certificate on its path, without a notice.
func TestStreamEndsWhenAnIssuerExpiresBeforeTheLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{TTL: time.Hour})
		pair := keyPair(t, authority, "default", "spiffe://example.org/web")
		pair.NotAfter = time.Now().Add(time.Minute)
		began := time.Now()
		_, end := fetch(t, expiring{secrettest.New(pair, bundle(authority, "ROOTCA")), pair.NotAfter})
		if err := end(); status.Code(err) != codes.Unavailable || time.Since(began) > 2*time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

// The machine is suspended: timers stand still, and the certificate expires meanwhile.
func TestStreamEndsSoonAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{TTL: time.Hour})
		pair := keyPair(t, authority, "default", "spiffe://example.org/web")
		var suspended atomic.Int64
		source := expiring{secrettest.New(pair, bundle(authority, "ROOTCA")), time.Now().Add(70 * time.Second)}
		_, end := fetch(t, source, func() time.Time { return time.Now().Add(time.Duration(suspended.Load())).Round(0) })
		time.Sleep(65 * time.Second) // between two looks
		suspended.Store(int64(2 * time.Hour))
		began := time.Now()
		if err := end(); status.Code(err) != codes.Unavailable || time.Since(began) > time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

// expiring holds its key pair until a time, and sends no notice then, as package secret does.
type expiring struct {
	*secrettest.Source
	until time.Time
}

func (e expiring) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	if name == "default" && time.Now().After(e.until) {
		return nil, secret.ErrNotReady
	}
	return e.Source.Peek(caller, name)
}

// The timer may fire a moment before the wall clock gets there, which it may do at any later look.
func TestStreamWaitsForNothingOnceItsTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		until := time.Now().Add(time.Second)
		looks := []time.Duration{-time.Second, -1, 1}
		if err := workloadapi.Wait(ctx, until, func() time.Time {
			left := looks[0]
			looks = looks[min(1, len(looks)-1):]
			return until.Add(left)
		}); err != nil {
			t.Error(err)
		}
	})
}
