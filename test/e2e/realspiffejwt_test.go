//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// jwtKey is a key of JWT-SVIDs in the file of the provider file.
type jwtKey struct {
	ID    string    `json:"kid"`
	Key   string    `json:"key"`
	Signs time.Time `json:"signs"`
	Ends  time.Time `json:"ends"`
}

// startJWTAgent starts an agent whose provider file signs JWT-SVIDs with the key "first". Its
// successor is due seconds later.
func startJWTAgent(t *testing.T, ttl string) *agent {
	t.Helper()
	a := prepareAgent(t, agentConfig{selfSigned: true, oneSocket: true, workloadAPI: map[string]any{
		"jwt_svid": map[string]any{"audiences": []string{"database"}, "ttl": ttl},
	}})
	key, err := pki.GenerateKey(pki.ECDSAP256)
	mustDo(t, err)
	text, err := pki.EncodeKey(key)
	mustDo(t, err)
	now := time.Now()
	a.writeJWTKeys(t, []jwtKey{{"first", string(text), now, now.Add(time.Hour + 15*time.Second)}})
	a.start(t)
	return a
}

func (a *agent) jwtKeys() string { return filepath.Join(a.ca, "jwt-keys.json") }

func (a *agent) writeJWTKeys(t *testing.T, keys []jwtKey) {
	t.Helper()
	content, err := json.Marshal(keys)
	mustDo(t, err)
	writeWhole(t, a.jwtKeys(), content)
}

// restartWithNextKey has the second key sign.
func (a *agent) restartWithNextKey(t *testing.T) {
	t.Helper()
	a.stop(t, syscall.SIGKILL)
	content, err := os.ReadFile(a.jwtKeys())
	mustDo(t, err)
	var keys []jwtKey
	mustDo(t, json.Unmarshal(content, &keys))
	now := time.Now()
	keys[0].Ends, keys[1].Signs = now, now
	a.writeJWTKeys(t, keys)
	a.start(t)
}

func TestRealSPIFFELibrariesHaveJWTSVIDs(t *testing.T) {
	withSPIFFELibraries(t, hasJWTSVIDs, "java", "python", "rust")
}

func hasJWTSVIDs(t *testing.T, command []string) {
	a := startJWTAgent(t, "10m")
	startSPIFFEWorkload(t, command, a.socket, "refused", "FetchJWTBundles").
		await(t, "its call without the security header refused", func(u svidUpdate) bool { return u.Code == 3 })
	startSPIFFEWorkload(t, command, a.socket, "jwt", "queue").
		await(t, "another audience refused", func(u svidUpdate) bool { return u.Code == 7 })

	w := startSPIFFEWorkload(t, command, a.socket, "jwt", "database")
	w.await(t, "a JWT-SVID that library and agent take", func(u svidUpdate) bool {
		return u.ID == envoyID && u.Key == "first" && len(u.Takers) == 2
	})
	w.await(t, "the next key, before it signs", func(u svidUpdate) bool { return u.Key == "first" && len(u.Keys) == 2 })
	a.restartWithNextKey(t)
	w.await(t, "a JWT-SVID of the next key beside that of the first", func(u svidUpdate) bool {
		if len(u.TakersForAnother) > 0 {
			t.Errorf("%v take it for another audience", u.TakersForAnother)
		}
		return u.ID == envoyID && u.Key != "first" && slices.Contains(u.Keys, u.Key) && len(u.Takers) == 2 && len(u.TakersOfFirst) == 2
	})
}

// jwt returns the ID of the key that signed the JWT-SVID in the file, if the bundle in the other
// verifies it, and how many keys that has. Both are written in place: what does not fit is read again.
func (h *spiffeHelper) jwt(t *testing.T) (key string, keys int) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(h.dir, "jwt_svid.token"))
	if err != nil {
		return "", 0
	}
	bundle, err := h.jwtBundle()
	if err != nil {
		return "", 0
	}
	svid, err := jwtsvid.ParseAndValidate(string(token), bundle, []string{"database"})
	if err != nil || svid.ID.String() != envoyID {
		return "", 0
	}
	return keyOf(t, string(token)), len(bundle.JWTAuthorities())
}

// keyOf returns the ID of the key that signed a JWT-SVID.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	parsed, err := jose.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	mustDo(t, err)
	return parsed.Signatures[0].Header.KeyID
}

// jwtBundle reads the bundles by trust domain, each in base64.
func (h *spiffeHelper) jwtBundle() (*jwtbundle.Bundle, error) {
	text, err := os.ReadFile(filepath.Join(h.dir, "jwt_bundle.json"))
	if err != nil {
		return nil, err
	}
	var bundles map[string][]byte
	if err := json.Unmarshal(text, &bundles); err != nil {
		return nil, err
	}
	return jwtbundle.Parse(spiffeid.RequireTrustDomainFromString(trustDomain), bundles[trustDomain])
}

func TestRealSPIFFEHelperWritesJWTSVIDs(t *testing.T) {
	t.Parallel()
	a := startJWTAgent(t, "30s") // it asks anew after half of it
	h := startSPIFFEHelper(t, a.socket, `
jwt_svids = [{jwt_audience = "database", jwt_svid_file_name = "jwt_svid.token"}]
jwt_bundle_file_name = "jwt_bundle.json"
`)
	h.awaitAnother(t)
	poll(t, "a JWT-SVID of the first key", func() bool { key, _ := h.jwt(t); return key == "first" })
	poll(t, "the next key, before it signs", func() bool { key, keys := h.jwt(t); return key == "first" && keys == 2 })
	a.restartWithNextKey(t)
	poll(t, "a JWT-SVID of the next key", func() bool { key, _ := h.jwt(t); return key != "" && key != "first" })
	h.awaitAnother(t)
}

func TestRealSPIFFEForGoFollowsTheKeys(t *testing.T) {
	t.Parallel()
	a := startJWTAgent(t, "10m")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	source, err := workloadapi.NewJWTSource(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+a.socket)))
	mustDo(t, err)
	defer source.Close()
	fetch := func() (string, error) {
		svid, err := source.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "database"})
		if err != nil {
			return "", err
		}
		_, err = jwtsvid.ParseAndValidate(svid.Marshal(), source, []string{"database"})
		return svid.Marshal(), err
	}
	first, err := fetch()
	if err != nil || keyOf(t, first) != "first" {
		t.Fatal(err)
	}
	poll(t, "the next key, before it signs", func() bool {
		bundle, err := source.GetJWTBundleForTrustDomain(spiffeid.RequireTrustDomainFromString(trustDomain))
		return err == nil && len(bundle.JWTAuthorities()) == 2
	})
	a.restartWithNextKey(t)
	poll(t, "a JWT-SVID of the next key", func() bool {
		token, err := fetch()
		return err == nil && keyOf(t, token) != "first"
	})
	if _, err := jwtsvid.ParseAndValidate(first, source, []string{"database"}); err != nil {
		t.Errorf("the JWT-SVID of the first key: %v", err)
	}
}
