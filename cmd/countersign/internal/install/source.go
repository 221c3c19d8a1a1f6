package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/transport"
)

// source has the files of an index, by their names.
type source interface {
	open(ctx context.Context, name string) (io.ReadCloser, error)
}

const indexName = "index.json"

// sourceOf takes a folder, an index file, or the URL of either.
func sourceOf(from string, hosts []string) (source, string, error) {
	if !strings.Contains(from, "://") {
		info, err := os.Stat(from)
		switch {
		case err != nil:
			return nil, "", err
		case info.IsDir():
			return folder(from), indexName, nil
		}
		return folder(filepath.Dir(from)), filepath.Base(from), nil
	}
	at, err := url.Parse(from)
	if err != nil {
		return nil, "", errors.New("invalid --from: not a URL")
	}
	if at.Scheme != "https" && (at.Scheme != "http" || !loopback(at.Hostname())) || at.Host == "" || at.User != nil {
		return nil, "", errors.New("--from must be a folder, a file, or an https URL without a password")
	}
	name := indexName
	if strings.HasSuffix(at.Path, ".json") {
		name = at.Path[strings.LastIndex(at.Path, "/")+1:]
		at.Path = strings.TrimSuffix(at.Path, name)
	}
	return remote{at, hosts}, name, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// read returns a whole file of so many bytes at most.
func read(ctx context.Context, from source, name string, most int64) ([]byte, error) {
	file, err := from.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return safefile.ReadAll(file, name, most)
}

// folder opens regular files in it alone: a link must not lead out of it, a pipe must not hang.
type folder string

func (f folder) open(_ context.Context, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in %s is not a regular file", name, f)
	}
	return root.Open(name)
}

// remote fetches by HTTP. Only its own host may answer, and those that the operator named: a
// server must not have this machine ask others.
type remote struct {
	at    *url.URL
	hosts []string
}

const maxRedirects = 3

func (r remote) open(ctx context.Context, name string) (io.ReadCloser, error) {
	outward := transport.Outward(nil)
	outward.ForceAttemptHTTP2, outward.DisableKeepAlives = true, true
	outward.ResponseHeaderTimeout = time.Minute
	client := &http.Client{Transport: outward, CheckRedirect: r.mayFollow}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.at.JoinPath(name).String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answers %d for %s", r.at.Host, resp.StatusCode, name)
	}
	return resp.Body, nil
}

func (r remote) mayFollow(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.URL.Scheme != r.at.Scheme:
		return fmt.Errorf("it leads from %s to %q", r.at.Scheme, req.URL.Scheme)
	case req.URL.Host != r.at.Host && !slices.Contains(r.hosts, req.URL.Host):
		return fmt.Errorf("it leads to another host, %q; allow it with --redirect-host", req.URL.Host)
	}
	return nil
}
