package jwt

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxDocument = 512 << 10
	defaultLife = time.Hour
	minLife     = time.Minute
	maxLife     = 24 * time.Hour
	// A file is cheap to read.
	fileLife = time.Minute

	discoveryPath = "/.well-known/openid-configuration"
)

// source locates and reads an issuer's keys.
type source struct {
	Config
	client *endpoint.Client
}

func newSource(cfg Config) *source {
	return &source{cfg, endpoint.New(endpoint.Options{RootFile: cfg.RootFile, MaxBody: maxDocument})}
}

func (s *source) fetch(ctx context.Context) (fetched, error) {
	switch {
	case s.JWKSFile != "":
		return readFile(s.JWKSFile)
	case s.JWKSURL != "":
		return s.get(ctx, s.JWKSURL)
	}
	url, err := s.discover(ctx)
	if err != nil {
		return fetched{}, err
	}
	return s.get(ctx, url)
}

// discover asks the issuer for its keys' URL (OpenID Connect Discovery 1.0, section 4).
func (s *source) discover(ctx context.Context) (string, error) {
	url := strings.TrimSuffix(s.Issuer, "/") + discoveryPath
	reply, err := s.ask(ctx, url)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if json.Unmarshal(reply.Body, &document) != nil {
		return "", fmt.Errorf("%s returned no discovery document in JSON", url)
	}
	// A document for another issuer must not introduce its keys (section 4.3).
	if document.Issuer != s.Issuer {
		return "", fmt.Errorf("%s has the issuer %.256q, not %q", url, document.Issuer, s.Issuer)
	}
	if err := endpoint.CheckURL(document.JWKSURI, s.AllowLoopbackHTTP); err != nil {
		return "", fmt.Errorf("the jwks_uri of %s: %w", url, err)
	}
	return document.JWKSURI, nil
}

func (s *source) get(ctx context.Context, url string) (fetched, error) {
	reply, err := s.ask(ctx, url)
	if err != nil {
		return fetched{}, err
	}
	keys, err := jws.ParseKeys(reply.Body)
	if err != nil {
		return fetched{}, fmt.Errorf("%s: %w", text.Clean(url), err)
	}
	return fetched{keys, lifeOf(reply.Header)}, nil
}

func (s *source) ask(ctx context.Context, url string) (endpoint.Reply, error) {
	reply, err := s.client.Do(ctx, http.MethodGet, url, http.Header{"Accept": {"application/json"}}, nil)
	switch {
	case err != nil:
		return reply, fmt.Errorf("get %s: %s", text.Clean(url), text.Clean(err.Error()))
	case reply.Status != http.StatusOK:
		return reply, fmt.Errorf("%s returned status %d", text.Clean(url), reply.Status)
	}
	return reply, nil
}

// lifeOf returns max-age (RFC 9111, section 5.2.2.1), clamped.
func lifeOf(header http.Header) time.Duration {
	for directive := range strings.SplitSeq(header.Get("Cache-Control"), ",") {
		value, found := strings.CutPrefix(strings.ToLower(strings.TrimSpace(directive)), "max-age=")
		if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 32); found && err == nil {
			return min(max(time.Duration(seconds)*time.Second, minLife), maxLife)
		}
	}
	return defaultLife
}

func readFile(path string) (fetched, error) {
	content, err := safefile.Read(path, maxDocument)
	if err != nil {
		return fetched{}, err
	}
	keys, err := jws.ParseKeys(content)
	if err != nil {
		return fetched{}, fmt.Errorf("%s: %w", path, err)
	}
	return fetched{keys, fileLife}, nil
}
