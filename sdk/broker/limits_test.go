package broker

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A stream that waits for its turn costs memory, too.
func TestStreamsThatWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(Broker{SPIFFEID: "spiffe://example.org/proxy"})
		s := &Server{accounts: map[string]*account{a.SPIFFEID: a}, log: slog.New(slog.DiscardHandler)}
		for range maxAtOnce {
			leave, err := a.wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		id := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/proxy"}
		ctx, cancel := context.WithTimeout(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{SPIFFEID: id}}), time.Minute)
		defer cancel()
		ask := func() error {
			c := &call{server: s}
			defer c.close()
			return c.resolve(ctx)
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
		if a.streams != 0 {
			t.Errorf("%d streams are left", a.streams)
		}
	})
}
