package ondemand_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const logKey = "8f1c0b5a7e93d24466fab01c9d85e2374b6a90c1de58f7320467bb18a95c3e0d"

// onDisk is a Set that keeps its certificates in a log in a folder.
func onDisk(t *testing.T, m *secret.Manager, folder string) (s *ondemand.Set, stop func()) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	kept, err := state.OpenLog(folder, []byte(logKey), quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, err = ondemand.New(ondemand.Config{Manager: m, Rules: []ondemand.Rule{shop()}, Storage: kept, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A certificate outlives the process in a real file.
func TestCertificatesAreKeptInALog(t *testing.T) {
	authority, folder := catest.NewCA(catest.Options{}), t.TempDir()+"/state"
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: authority}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := map[string]*secret.Item{}
	for range 2 {
		s, stop := onDisk(t, m, folder)
		for i := range 50 {
			name := fmt.Sprintf("n%d.shop.example.org", i)
			item, err := secret.Get(ctx, s, secret.Caller{}, name)
			if err != nil {
				t.Fatal(err)
			}
			if before := first[name]; before != nil && (before.Fingerprint != item.Fingerprint || !bytes.Equal(before.Key, item.Key)) {
				t.Errorf("%s has another certificate", name)
			}
			first[name] = item
		}
		stop()
	}
	if n := len(authority.Requests()); n != 50 {
		t.Errorf("%d orders", n)
	}
}
