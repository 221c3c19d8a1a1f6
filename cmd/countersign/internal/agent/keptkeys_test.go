package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

const partnerKeys = `{"keys":[{"kty":"EC","kid":"one","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`

func partnerEndpoint() []config.BundleEndpoint {
	return []config.BundleEndpoint{{Name: "partner", Followed: config.Followed{TrustDomain: "partner.example", URL: "https://localhost"}}}
}

// Clients drop the keys that the first reply after a restart lacks, and the endpoint may be away.
func TestForeignJWTKeysOutliveARestart(t *testing.T) {
	folder, err := state.Open(t.TempDir()+"/state", []byte(goodKey))
	if err != nil {
		t.Fatal(err)
	}
	run := func(storage secret.Storage) *federated {
		t.Helper()
		f, err := openFederation(&config.Config{BundleEndpoints: partnerEndpoint()}, storage, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := run(folder)
	if got := first.keys.Keys("partner.example"); got != nil {
		t.Errorf("before any answer: %s", got)
	}
	first.source.JWTKeys("partner.example", []byte(partnerKeys))
	if got := run(folder).keys.Keys("partner.example"); string(got) != partnerKeys {
		t.Errorf("after a restart: %s", got)
	}
	first.source.JWTKeys("partner.example", []byte(`{"keys":[]}`))
	if got := run(folder).keys.Keys("partner.example"); string(got) != `{"keys":[]}` {
		t.Errorf("after they were revoked: %s", got)
	}
	if got := run(nil).keys.Keys("partner.example"); got != nil {
		t.Errorf("without state: %s", got)
	}
}

// records is a storage in memory.
type records struct {
	kept   map[string]secret.Record
	stores int
	err    error
}

func (r *records) Load(_ context.Context, name string) (secret.Record, error) {
	return r.kept[name], r.err
}

func (r *records) Store(_ context.Context, name string, record secret.Record) error {
	r.stores++
	if r.err == nil {
		r.kept[name] = record
	}
	return r.err
}

func TestKeptJWTKeysCountForADayAfterTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := &records{kept: map[string]secret.Record{}}
		k := newKeptKeys(storage, slog.New(slog.DiscardHandler))
		for range 12 * 20 { // one answer in three minutes
			k.store("it", []byte(partnerKeys))
			time.Sleep(3 * time.Minute)
		}
		if storage.stores > 2 {
			t.Errorf("the same keys were stored %d times", storage.stores)
		}
		time.Sleep(11 * time.Hour)
		if got := k.load("it"); string(got) != partnerKeys {
			t.Errorf("got %s", got)
		}
		time.Sleep(13 * time.Hour)
		if got := k.load("it"); got != nil {
			t.Errorf("got %s", got)
		}
	})
}

func TestKeptJWTKeysOfAnotherKindAreIgnored(t *testing.T) {
	valid, err := json.Marshal(keptJWKS{Version: 1, Until: time.Now().Add(time.Hour), JWKS: []byte(partnerKeys)})
	if err != nil {
		t.Fatal(err)
	}
	for name, record := range map[string]secret.Record{
		"authority": {Authority: "another", Content: valid},
		"identity":  {Authority: "it", Identity: "spiffe://example.org/web", Content: valid},
		"version":   {Authority: "it", Content: bytes.Replace(valid, []byte(`"version":1`), []byte(`"version":2`), 1)},
		"content":   {Authority: "it", Content: []byte("{")},
	} {
		var log logtest.Log
		k := newKeptKeys(&records{kept: map[string]secret.Record{keysRecord("it"): record}}, log.Logger())
		if got := k.load("it"); got != nil || !strings.Contains(log.String(), "are ignored") {
			t.Errorf("%s: %s\n%s", name, got, &log)
		}
	}
}

// The agent has not begun to serve while it loads them.
func TestStorageThatHangsDelaysTheStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := hung{make(chan struct{})}
		var log logtest.Log
		k, began := newKeptKeys(storage, log.Logger()), time.Now()
		for _, authority := range []string{"one", "two", "three"} {
			if got := k.load(authority); got != nil {
				t.Errorf("%s: %s", authority, got)
			}
		}
		if took := time.Since(began); took > keptKeysTimeout+time.Second || strings.Count(log.String(), "are ignored") != 3 {
			t.Errorf("took %s\n%s", took, &log)
		}
		close(storage.over)
		synctest.Wait()
	})
}

func TestJWTKeysThatCannotBeStoredAreTriedAgain(t *testing.T) {
	var log logtest.Log
	storage := &records{kept: map[string]secret.Record{}, err: context.DeadlineExceeded}
	k := newKeptKeys(storage, log.Logger())
	k.store("it", []byte(partnerKeys))
	storage.err = nil
	k.store("it", []byte(partnerKeys))
	if got := k.load("it"); string(got) != partnerKeys || strings.Count(log.String(), "could not be stored") != 1 {
		t.Errorf("%s\n%s", got, &log)
	}
}
