package main_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"aead.dev/minisign"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/install"
	"github.com/countersign-dev/countersign/internal/test/fatal"
)

var must = fatal.If

// publisher writes an index with one provider, acme 1.2.0.
type publisher struct {
	dir    string
	secret minisign.PrivateKey
	public string // file
	serial int64
	binary []byte
	build  map[string]any
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	must(t, err)
	p := &publisher{dir: t.TempDir(), secret: secret, serial: 7, binary: bytes.Repeat([]byte("a provider\n"), 1000)}
	text, err := public.MarshalText()
	must(t, err)
	p.public = filepath.Join(t.TempDir(), "key.pub")
	must(t, os.WriteFile(p.public, text, 0o600))
	hash := sha256.Sum256(p.binary)
	p.build = map[string]any{"name": "acme", "version": "1.2.0", "os": runtime.GOOS, "arch": runtime.GOARCH,
		"file": "acme.gz", "size": len(p.binary), "sha256": hex.EncodeToString(hash[:])}
	p.publish(t)
	return p
}

func (p *publisher) publish(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"format": 1, "serial": p.serial, "providers": []any{p.build}})
	must(t, err)
	p.write(t, "index.json", text)
	p.sign(t, "index.json", text, "an index")
	p.pack(t, p.binary)
	p.sign(t, "acme", p.binary, fmt.Sprintf("countersign-provider-acme 1.2.0 %s/%s", runtime.GOOS, runtime.GOARCH))
}

func (p *publisher) pack(t *testing.T, binary []byte) {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(binary)
	must(t, err)
	must(t, w.Close())
	p.write(t, "acme.gz", packed.Bytes())
}

func (p *publisher) sign(t *testing.T, name string, text []byte, comment string) {
	t.Helper()
	r := minisign.NewReader(bytes.NewReader(text))
	_, err := new(bytes.Buffer).ReadFrom(r)
	must(t, err)
	p.write(t, name+".minisig", r.SignWithComments(p.secret, comment, "unsigned"))
}

func (p *publisher) write(t *testing.T, name string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(p.dir, name), text, 0o600))
}

func (p *publisher) request(t *testing.T) install.Request {
	t.Helper()
	key, err := install.ReadKey(p.public)
	must(t, err)
	return install.Request{Name: "acme", Version: "1.2.0", From: p.dir, Key: key, Folder: filepath.Join(t.TempDir(), "providers")}
}

func TestInstalledProviderHasSignature(t *testing.T) {
	p := newPublisher(t)
	request := p.request(t)
	request.Version = "" // the index has one
	done, err := install.Install(t.Context(), request)
	must(t, err)
	content, err := os.ReadFile(done.Path)
	must(t, err)
	info, err := os.Stat(done.Path)
	must(t, err)
	if !bytes.Equal(content, p.binary) || info.Mode() != 0o755 || filepath.Base(done.Path) != "countersign-provider-acme@1.2.0" {
		t.Errorf("%s has %d bytes and mode %s", done.Path, len(content), info.Mode())
	}
	must(t, request.Key.VerifyProvider(done.Path, "acme", "1.2.0"))
	for says, check := range map[string]func() error{
		"is signed as":         func() error { return request.Key.VerifyProvider(done.Path, "acme", "1.3.0") },
		"is signed by the key": func() error { return newPublisher(t).request(t).Key.VerifyProvider(done.Path, "acme", "1.2.0") },
		"its signature is wrong": func() error {
			spoilt := filepath.Join(t.TempDir(), "spoilt")
			signature, err := os.ReadFile(done.Path + ".minisig")
			must(t, err)
			must(t, os.WriteFile(spoilt+".minisig", signature, 0o600))
			must(t, os.WriteFile(spoilt, []byte("other"), 0o600))
			return request.Key.VerifyProvider(spoilt, "acme", "1.2.0")
		},
		"is not signed": func() error { return request.Key.VerifyProvider(request.Folder, "acme", "1.2.0") },
	} {
		if err := check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// Neither the server of the files nor even the signer of the index gets anything else installed.
func TestSpoiltSourceIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("writes many megabytes")
	}
	for says, spoil := range map[string]func(t *testing.T, p *publisher, r *install.Request){
		"index.json is refused: its signature is wrong": func(t *testing.T, p *publisher, _ *install.Request) {
			p.write(t, "index.json", []byte(`{"format": 1, "serial": 8}`))
		},
		"not by": func(t *testing.T, _ *publisher, r *install.Request) { r.Key = newPublisher(t).request(t).Key },
		"not of minisign's format": func(t *testing.T, p *publisher, _ *install.Request) {
			p.write(t, "index.json.minisig", []byte("untrusted comment: x\nRWQ\n"))
		},
		"index.json.minisig": func(t *testing.T, p *publisher, _ *install.Request) {
			must(t, os.Remove(filepath.Join(p.dir, "index.json.minisig")))
		},
		"index.json has more than 1048576 bytes": func(t *testing.T, p *publisher, _ *install.Request) {
			must(t, os.Truncate(filepath.Join(p.dir, "index.json"), 2<<20))
		},
		`the file "../../etc/acme.gz"`: func(t *testing.T, p *publisher, _ *install.Request) {
			p.build["file"] = "../../etc/acme.gz"
			p.publish(t)
		},
		`invalid provider name "../acme"`: func(t *testing.T, p *publisher, _ *install.Request) {
			p.build["name"] = "../acme"
			p.publish(t)
		},
		`invalid provider version "1/../2"`: func(t *testing.T, p *publisher, _ *install.Request) {
			p.build["version"] = "1/../2"
			p.publish(t)
		},
		"536870912 are allowed": func(t *testing.T, p *publisher, _ *install.Request) {
			p.build["size"] = 1 << 40
			p.publish(t)
		},
		`only for "plan9/mips"`: func(t *testing.T, p *publisher, _ *install.Request) {
			p.build["os"], p.build["arch"] = "plan9", "mips"
			p.publish(t)
		},
		"the index has no provider acme@9": func(_ *testing.T, _ *publisher, r *install.Request) { r.Version = "9" },
		"unexpected EOF": func(t *testing.T, p *publisher, _ *install.Request) {
			must(t, os.Truncate(filepath.Join(p.dir, "acme.gz"), 40))
		},
		"the index has 11000 bytes": func(t *testing.T, p *publisher, _ *install.Request) {
			p.pack(t, append(p.binary, make([]byte, 64<<20)...)) // a bomb
		},
		`is signed as "countersign-provider-acme 1.1.0`: func(t *testing.T, p *publisher, _ *install.Request) {
			p.sign(t, "acme", p.binary, fmt.Sprintf("countersign-provider-acme 1.1.0 %s/%s", runtime.GOOS, runtime.GOARCH))
		},
		"acme.gz is refused: its signature is wrong": func(t *testing.T, p *publisher, _ *install.Request) {
			p.sign(t, "acme", []byte("other"), "x")
		},
		"escapes": func(t *testing.T, p *publisher, _ *install.Request) {
			path := filepath.Join(p.dir, "acme.gz")
			out := filepath.Join(t.TempDir(), "out")
			must(t, os.Rename(path, out))
			must(t, os.Symlink(out, path))
		},
		"not a regular file": func(t *testing.T, p *publisher, _ *install.Request) {
			must(t, os.Remove(filepath.Join(p.dir, "acme.gz")))
			must(t, os.Mkdir(filepath.Join(p.dir, "acme.gz"), 0o700))
		},
		"format 2": func(t *testing.T, p *publisher, _ *install.Request) {
			text := []byte(`{"format": 2, "serial": 8}`)
			p.write(t, "index.json", text)
			p.sign(t, "index.json", text, "")
		},
	} {
		t.Run(says, func(t *testing.T) {
			p := newPublisher(t)
			request := p.request(t)
			spoil(t, p, &request)
			done, err := install.Install(t.Context(), request)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Fatalf("%+v, %v", done, err)
			}
			if left, _ := filepath.Glob(filepath.Join(request.Folder, "*countersign-provider*")); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestOlderIndexIsRefused(t *testing.T) {
	p := newPublisher(t)
	request := p.request(t)
	for _, step := range []struct {
		serial int64
		older  bool
		says   string
	}{{7, false, ""}, {9, false, ""}, {9, false, ""}, {8, false, "it is an old one"}, {8, true, ""}, {8, false, "it is an old one"}} {
		p.serial, request.Older = step.serial, step.older
		p.publish(t)
		_, err := install.Install(t.Context(), request)
		if (err == nil) != (step.says == "") || err != nil && !strings.Contains(err.Error(), step.says) {
			t.Errorf("serial %d: %v", step.serial, err)
		}
	}
}

func TestServerMayRedirectToItselfAlone(t *testing.T) {
	p := newPublisher(t)
	files := httptest.NewServer(http.FileServer(http.Dir(p.dir)))
	defer files.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(files.URL+"/index.json", http.StatusFound))
	defer elsewhere.Close()
	request := p.request(t)
	request.From = files.URL + "/index.json"
	if _, err := install.Install(t.Context(), request); err != nil {
		t.Error(err)
	}
	request.From = elsewhere.URL
	if _, err := install.Install(t.Context(), request); err == nil || !strings.Contains(err.Error(), "leads to another host") {
		t.Errorf("got %v", err)
	}
	request.Hosts = []string{strings.TrimPrefix(files.URL, "http://")}
	if _, err := install.Install(t.Context(), request); err == nil || strings.Contains(err.Error(), "leads to another host") {
		t.Errorf("got %v", err) // all files are the index there
	}
	for _, from := range []string{"http://example.org", "https://u:p@example.org", "file:///etc"} {
		request.From = from
		if _, err := install.Install(t.Context(), request); err == nil || !strings.Contains(err.Error(), "https URL without a password") {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// A server that stalls is waited for as long as the caller wants to.
func TestStalledServerEndsWithCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	request := newPublisher(t).request(t)
	request.From = server.URL
	if _, err := install.Install(ctx, request); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}

func TestTwoInstallsAtOnceLeaveOneWhole(t *testing.T) {
	p := newPublisher(t)
	request := p.request(t)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { _, errs[i] = install.Install(t.Context(), request) })
	}
	all.Wait()
	succeeded := 0
	for _, err := range errs {
		if err == nil {
			succeeded++
		} else if !strings.Contains(err.Error(), "another install") {
			t.Error(err)
		}
	}
	if succeeded == 0 {
		t.Error("none succeeded")
	}
	must(t, request.Key.VerifyProvider(filepath.Join(request.Folder, "countersign-provider-acme@1.2.0"), "acme", "1.2.0"))
}
