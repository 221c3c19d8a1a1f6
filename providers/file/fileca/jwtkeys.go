package fileca

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// jwtFile has the private keys of JWT-SVIDs, and witFile those of WIT-SVIDs. Each is made when the
// first is asked for.
const (
	jwtFile = "jwt-keys.json"
	witFile = "wit-keys.json"
)

// svidKind is a kind of SVID. Each has keys of its own: with a key in common, a token of one kind
// would verify as one of the other.
type svidKind struct {
	name string
	file string
	use  string // of the published keys (RFC 7517, section 4.2)
}

var (
	jwtKind = svidKind{"JWT-SVIDs", jwtFile, "jwt-svid"}
	witKind = svidKind{"WIT-SVIDs", witFile, "wit-svid"}
)

const (
	// jwtKeyLife is how long a key signs, and jwtLead how long it is published before: clients that
	// poll the keys have it by then.
	jwtKeyLife = 24 * time.Hour
	jwtLead    = time.Hour
	maxJWTLife = time.Hour
	// jwtAfter is how long a key stays published when it signs no more.
	jwtAfter = maxJWTLife + 5*time.Minute
)

// jwtKey is one key, published since it was made, until jwtAfter its end.
type jwtKey struct {
	ID    string    `json:"kid"`
	Key   string    `json:"key"` // PKCS #8 in PEM
	Signs time.Time `json:"signs"`
	Ends  time.Time `json:"ends"`

	key crypto.Signer
}

func newJWTKey(signs time.Time) (jwtKey, error) {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		return jwtKey{}, err
	}
	text, err := pki.EncodeKey(key)
	if err != nil {
		return jwtKey{}, err
	}
	id, err := (&jose.JSONWebKey{Key: key.Public()}).Thumbprint(crypto.SHA256) // RFC 7638
	return jwtKey{base64.RawURLEncoding.EncodeToString(id), string(text), signs, signs.Add(jwtKeyLife), key}, err
}

// ring are the published keys, in the order in which they sign.
type ring []jwtKey

// advance returns the ring as it is at now. A key signs until its successor has been published for
// jwtLead, even past its end. Only where there is no key at all does a new one sign at once.
func (r ring) advance(now time.Time) (next ring, changed bool, err error) {
	for _, key := range r {
		if now.Before(key.Ends.Add(jwtAfter)) {
			next = append(next, key)
		}
	}
	changed, signs := len(next) < len(r), now
	if len(next) > 0 {
		last := &next[len(next)-1]
		if now.Before(last.Ends.Add(-jwtLead)) {
			return next, changed, nil
		}
		if earliest := now.Add(jwtLead); last.Ends.Before(earliest) {
			last.Ends = earliest
		}
		signs = last.Ends
	}
	key, err := newJWTKey(signs)
	return append(next, key), true, err
}

// due is when the ring must be advanced.
func (r ring) due() time.Time {
	due := r[len(r)-1].Ends.Add(-jwtLead)
	if first := r[0].Ends.Add(jwtAfter); first.Before(due) {
		return first
	}
	return due
}

// signer returns the key that signs at now: the first, if the clock was set back.
func (r ring) signer(now time.Time) jwtKey {
	signer := r[0]
	for _, key := range r[1:] {
		if !now.Before(key.Signs) {
			signer = key
		}
	}
	return signer
}

// public returns the JWK set of the ring, for this use.
func (r ring) public(use string) ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, key := range r {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.key.Public(), KeyID: key.ID, Algorithm: string(jose.ES256), Use: use})
	}
	return json.Marshal(set)
}

// parseRing reads the file. An error does not quote it.
func parseRing(content []byte) (r ring, err error) {
	if json.Unmarshal(content, &r) != nil || len(r) == 0 {
		return nil, errors.New("not a list of keys")
	}
	for i := range r {
		if r[i].key, err = pki.ParseKey([]byte(r[i].Key)); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
	}
	return r, nil
}

// svidKeys keeps the ring of a folder for one kind of SVID. Several processes may share it: the first one writes the
// file when it is due, and the others read it.
type svidKeys struct {
	svidKind
	dir string
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	ring  ring // nil before the first use
	jwks  []byte
	tried time.Time // the last time that the ring could not be turned
}

// current returns the ring and its JWK set, and how long both are good for.
func (k *svidKeys) current(ctx context.Context) (ring, []byte, time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now().Round(0) // for the file
	if k.ring == nil || !now.Before(k.ring.due()) {
		if err := k.renew(ctx, now); err != nil {
			return nil, nil, 0, err
		}
	}
	left := k.ring.due().Sub(now)
	if left <= 0 { // it could not be turned
		left = jwtLook
	}
	return k.ring, k.jwks, left, nil
}

// renew turns the ring. While a folder that is full or locked prevents that, the ring is good until its
// last key ends: longer, other processes would not publish what it signs with.
func (k *svidKeys) renew(ctx context.Context, now time.Time) error {
	good := k.ring != nil && now.Before(k.ring[len(k.ring)-1].Ends)
	if wait := now.Sub(k.tried); good && wait >= 0 && wait < jwtLook {
		return nil
	}
	err := k.turn(ctx, now)
	if err == nil || !good {
		return err
	}
	k.tried = now
	k.log.Warn("failed to renew the keys of "+k.name+"; the present key goes on signing", "dir", k.dir, "error", err)
	return nil
}

// turn reads the file, and writes it anew if a key begins or goes.
func (k *svidKeys) turn(ctx context.Context, now time.Time) error {
	f, err := lockFolder(ctx, k.dir, k.log)
	if err != nil {
		return folderError("keys of "+k.name, k.dir, err)
	}
	defer f.close()
	path := filepath.Join(k.dir, k.file)
	held, err := k.read(f, path)
	if err != nil {
		return ca.Errorf(ca.Invalid, "%s: %w", path, err)
	}
	next, changed, err := held.advance(now)
	if err != nil {
		return ca.Errorf(ca.Internal, "a key for %s: %w", k.name, err)
	}
	jwks, err := next.public(k.use)
	if err == nil && changed {
		err = k.write(f, next)
	}
	if err != nil {
		return ca.Errorf(ca.Unavailable, "%s: %w", path, err)
	}
	k.ring, k.jwks = next, jwks
	return nil
}

func (k *svidKeys) read(f *folder, path string) (ring, error) {
	if !f.has(k.file) {
		return nil, nil
	}
	content, err := setting.File(path).Read()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && looseMode(info.Mode()) {
		k.log.Warn("others can read the keys of "+k.name+" or its group can write them; use mode 0600", "path", path, "mode", info.Mode().Perm().String())
	}
	return parseRing(content)
}

func (k *svidKeys) write(f *folder, next ring) error {
	content, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := f.write(k.file, 0o600, append(content, '\n')); err != nil {
		return err
	}
	last := next[len(next)-1]
	k.log.Info("made a key for "+k.name, "dir", k.dir, "kid", last.ID, "signs", stamp(last.Signs), "keys", len(next))
	return nil
}
