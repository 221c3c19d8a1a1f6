// Package kubeapi (experimental) calls a Kubernetes API server by plain HTTPS and links no
// Kubernetes package. [Client.Do] makes one call, [Client.List] reads a collection page by page,
// [Client.Watch] streams its changes, and a [Follower] does both for as long as it runs. The
// caller brings the types: a struct with the few fields that it uses.
//
// An error is a [*StatusError] if the API server answered. Each error has a reason of package ca, so
// that its table of waits applies.
package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

const (
	callTimeout = 10 * time.Second
	// defaultReply is in bytes. etcd keeps no object of more than 1.5 MiB; its text in JSON can
	// be longer.
	defaultReply = 4 << 20
	// maxToken is in bytes.
	maxToken = 64 << 10

	inClusterURL = "https://kubernetes.default.svc"
)

// account is the folder of a pod's service account; tests replace it.
var account = "/var/run/secrets/kubernetes.io/serviceaccount"

// Config is how to reach one API server.
type Config struct {
	// URL of the API server, such as https://10.0.0.1:6443. Required.
	URL string
	// RootFile holds the roots (PEM) that verify the API server. It is read for each call.
	// Default: the system roots.
	RootFile string
	// Token is our credential, queried for each call and notified of a rejected token. Default:
	// none.
	Token token.Source
	// Transport replaces RootFile: it carries the roots, and may carry a credential. Closing the
	// client leaves it as it is. Default: none.
	Transport http.RoundTripper
	// UserAgent names the caller in the API server's audit log. Default: countersign.
	UserAgent string
	// MaxReply is how many bytes a reply, or an event of a watch, may have. Default: 4 MiB.
	MaxReply int64
}

// InCluster returns the access of a pod: the API server's usual name, and the roots and the token
// of the service account, which are read for each call.
func InCluster() Config {
	return Config{URL: inClusterURL, RootFile: account + "/ca.crt", Token: token.File{Path: account + "/token"}}
}

// Namespace returns the namespace of the pod that we run in. The error is [ca.Unavailable] outside
// of one.
func Namespace() (string, error) {
	content, err := os.ReadFile(account + "/namespace")
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "failed to read the namespace of this pod: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Check returns an error unless the URL is that of a server: https, or http on this machine where
// a Transport is set.
func (c Config) Check() error {
	if err := endpoint.CheckURL(c.URL, c.Transport != nil); err != nil {
		return err
	}
	if strings.ContainsAny(c.URL, "?#") {
		return errors.New("an API server's URL must not have a query or a fragment")
	}
	return nil
}

// Client calls one API server. It is safe for concurrent use.
type Client struct {
	cfg  Config
	host string
	http *endpoint.Client
}

// New returns a client; it reads and sends nothing. The error is that of [Config.Check].
func New(cfg Config) (*Client, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "countersign")
	cfg.MaxReply = cmp.Or(cfg.MaxReply, defaultReply)
	return &Client{cfg: cfg, host: base.Host, http: endpoint.New(endpoint.Options{
		RootFile: cfg.RootFile, Transport: cfg.Transport, Redirects: endpoint.ReplyRedirects,
		MaxBody: cfg.MaxReply, Timeout: callTimeout, KeepAlive: true,
	})}, nil
}

// Close closes idle connections. The client may be used again.
func (c *Client) Close() { c.http.Close() }

// The types of a patch, for [Call.Type].
const (
	// MergePatch is RFC 7386.
	MergePatch = "application/merge-patch+json"
	// ApplyPatch is a server-side apply.
	ApplyPatch = "application/apply-patch+yaml"
)

// Call is one request.
type Call struct {
	// Method is an HTTP method. Default: GET.
	Method string
	// Path is that of an object or a collection, such as /api/v1/namespaces/shop/pods.
	Path string
	// Query has what the path does not, such as fieldSelector. Default: none.
	Query url.Values
	// Body is sent as JSON. Default: none.
	Body any
	// Type is the content type of the body. Default: application/json.
	Type string
	// MetadataOnly asks for objects without spec, data and status (PartialObjectMetadata).
	MetadataOnly bool
	// Hide are secrets in the request that an error must not repeat. Our own token is always
	// hidden.
	Hide []ca.Token
}

// String returns the method and path, for messages.
func (r Call) String() string { return cmp.Or(r.Method, http.MethodGet) + " " + r.Path }

// Do makes a call and decodes the reply into out, unless that is nil. It takes 10 seconds at most.
func (c *Client) Do(ctx context.Context, r Call, out any) error {
	own, err := c.prepare(ctx, &r)
	if err != nil {
		return err
	}
	header, body, err := c.request(r, own)
	if err != nil {
		return err
	}
	reply, err := c.http.Do(ctx, cmp.Or(r.Method, http.MethodGet), c.address(r), header, body)
	switch {
	case err != nil:
		return c.unanswered(ctx, r, err)
	case reply.Status/100 != 2:
		return c.refused(r, own, reply)
	case out != nil && json.Unmarshal(reply.Body, out) != nil: // its error quotes the reply
		return ca.Errorf(ca.Internal, "%s answered %s with invalid JSON", c.host, r)
	}
	return nil
}

// Delete deletes the object of that path if it has that uid and resourceVersion, either of which
// may be empty. It succeeds if the object is missing, or if the uid alone was given and differs. The
// error is a [*StatusError] with the status 409 if the object has another version.
func (c *Client) Delete(ctx context.Context, path, uid, resourceVersion string) error {
	exactly := struct {
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}{uid, resourceVersion}
	err := c.Do(ctx, Call{Method: http.MethodDelete, Path: path, Body: map[string]any{"preconditions": exactly}}, nil)
	if Answered(err, http.StatusNotFound) || resourceVersion == "" && Answered(err, http.StatusConflict) {
		return nil
	}
	return err
}

// prepare reads our token, and hides it.
func (c *Client) prepare(ctx context.Context, r *Call) (own ca.Token, err error) {
	if c.cfg.Token == nil {
		return "", nil
	}
	got, err := c.cfg.Token.Token(ctx)
	if err == nil && !sendable(got.Token) {
		err = errors.New("it is not usable in an HTTP header")
	}
	r.Hide = append(slices.Clip(r.Hide), got.Token)
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "failed to get our token for the API server: %s", text.Redact(err.Error(), r.Hide...))
	}
	return got.Token, nil
}

func sendable(t ca.Token) bool {
	return len(t) <= maxToken && !strings.ContainsFunc(t.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' })
}

func (c *Client) address(r Call) string {
	if len(r.Query) == 0 {
		return c.cfg.URL + r.Path
	}
	return c.cfg.URL + r.Path + "?" + r.Query.Encode()
}

func (c *Client) request(r Call, own ca.Token) (header http.Header, body []byte, err error) {
	header = http.Header{"Accept": {"application/json"}, "User-Agent": {c.cfg.UserAgent}}
	if own != "" {
		header.Set("Authorization", "Bearer "+own.Reveal())
	}
	if r.MetadataOnly {
		header.Set("Accept", metadataOf(r))
	}
	if r.Body == nil {
		return header, nil, nil
	}
	header.Set("Content-Type", cmp.Or(r.Type, "application/json"))
	if body, err = json.Marshal(r.Body); err != nil {
		return nil, nil, ca.Errorf(ca.Internal, "failed to encode the request %s: %w", r, err)
	}
	return header, body, nil
}
