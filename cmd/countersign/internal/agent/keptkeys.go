package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	keptKeysTimeout = 5 * time.Second
	// keptKeysLife is how long a record may restore keys, as that of roots: a revoked key must
	// not come back after a long time. An endpoint that answers renews its record twice in
	// that time.
	keptKeysLife    = 24 * time.Hour
	keptKeysVersion = 1
)

// keptKeys keeps the JWT keys of foreign trust domains for the next run, each in a record of its
// own beside that of the roots. Its zero value keeps nothing.
type keptKeys struct {
	storage secret.Storage
	turn    call.Turn
	log     *slog.Logger

	mu     sync.Mutex
	stored map[string]string // the content of the records, by authority
}

// keptJWKS is the content of a record.
type keptJWKS struct {
	Version int             `json:"version"`
	Until   time.Time       `json:"until"`
	JWKS    json.RawMessage `json:"jwks"`
}

func newKeptKeys(storage secret.Storage, log *slog.Logger) *keptKeys {
	return &keptKeys{storage: storage, turn: call.NewTurn(), log: log, stored: map[string]string{}}
}

func keysRecord(authority string) string { return "jwt keys " + authority }

// load returns the keys of the last run, nil if there are none that still count. Loads come one after the
// other while the agent starts, so one that hangs is waited for once.
func (k *keptKeys) load(authority string) []byte {
	if k.storage == nil {
		return nil
	}
	var r secret.Record
	err := errors.New("the storage has not answered an earlier call")
	if k.turn.Free() {
		r, err = call.Do(context.Background(), keptKeysTimeout, k.turn, func(ctx context.Context) (secret.Record, error) {
			return k.storage.Load(ctx, keysRecord(authority))
		})
	}
	if err == nil && len(r.Content) == 0 {
		return nil
	}
	kept, err := readKept(r, authority, err)
	if err != nil {
		k.log.Warn("the JWT keys of the last run are ignored", "authority", authority, "error", text.Clean(err.Error()))
		return nil
	}
	return kept.JWKS
}

// readKept checks a record unless it could not be read.
func readKept(r secret.Record, authority string, err error) (kept keptJWKS, _ error) {
	switch {
	case err != nil:
		return kept, err
	case r.Authority != authority || r.Identity != "":
		return kept, fmt.Errorf("they are of %.256q", r.Authority)
	case json.Unmarshal(r.Content, &kept) != nil, kept.Version != keptKeysVersion:
		return kept, errors.New("the record's content is not understood")
	case !time.Now().Before(kept.Until):
		return kept, fmt.Errorf("they counted until %s", kept.Until.Format(time.RFC3339))
	}
	return kept, nil
}

// store keeps the keys of an endpoint that has just answered, if the record would change. After an
// error, the next answer tries again.
func (k *keptKeys) store(authority string, jwks []byte) {
	if k.storage == nil {
		return
	}
	until := time.Now().UTC().Truncate(keptKeysLife / 2).Add(keptKeysLife)
	content, err := json.Marshal(keptJWKS{Version: keptKeysVersion, Until: until, JWKS: jwks})
	k.mu.Lock()
	same := k.stored[authority] == string(content)
	k.mu.Unlock()
	if err == nil && same {
		return
	}
	if err == nil {
		_, err = call.Do(context.Background(), keptKeysTimeout, k.turn, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, k.storage.Store(ctx, keysRecord(authority), secret.Record{Authority: authority, Content: content})
		})
	}
	if err != nil {
		k.log.Warn("the JWT keys of a foreign trust domain could not be stored for the next run; they are served all the same", "authority", authority, "error", text.Clean(err.Error()))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored[authority] = string(content)
}
