package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/transport"
)

// Locality is the source of the zone: the first of Value, Variable, File and URL that is set.
type Locality struct {
	Value    string
	Variable string // of the agent's environment, which Getenv reads
	Getenv   func(name string) string
	File     string
	// URL is an HTTP metadata address, requested with Headers. Redirects are not followed.
	URL     string
	Headers map[string]string
	// Tries is how often to ask, Interval apart, each time for at most Timeout.
	Tries             int
	Interval, Timeout time.Duration

	// A zone that is found after the start is passed on once. A reload command and a new
	// epoch get it anyway. A signal carries no data: without WriteFile or Restart, the
	// proxy gets the zone at its next start.
	//
	// WriteFile is atomically replaced (mode 0644) with the zone and a newline, before the
	// start or the reload. Default: none.
	WriteFile string
	// Restart restarts the proxy, once. Default: false.
	Restart bool
}

func (l Locality) configured() bool { return l.Value+l.Variable+l.File+l.URL != "" }

// maxLocality limits a response, in bytes.
const maxLocality = 256

// zoneName matches what is safe in an argument or a variable; Istio writes
// region/zone/subzone. A counted repetition would compile to 100 kB.
var zoneName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`)
})

const maxZone = 128

// googleZone is the prefix of a response of Google's metadata server,
// projects/N/zones/ZONE.
var googleZone = regexp.MustCompile(`^projects/[^/]+/zones/`)

// zone returns the locality, "" if there is none (yet).
func (p *Proxy) zone() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.locality
}

// locate finds the locality. It closes tried after the first try, and located on success.
func (p *Proxy) locate(ctx context.Context, tried, located chan<- struct{}) {
	first := func() {
		if tried != nil {
			close(tried)
			tried = nil
		}
	}
	defer first()
	if !p.cfg.Locality.configured() {
		return
	}
	for n := 1; ; n++ {
		zone, err := p.find(ctx)
		if err == nil {
			err = p.cfg.Locality.write(zone)
		}
		if err == nil {
			p.mu.Lock()
			p.locality = zone
			p.mu.Unlock()
			p.log.Info("found the locality", "locality", zone, "tries", n)
			close(located)
			return
		}
		if n >= p.cfg.Locality.Tries || ctx.Err() != nil {
			p.log.Warn("no locality found, starting the proxy without one", "tries", n, "error", err)
			return
		}
		first()
		select {
		case <-time.After(p.cfg.Locality.Interval):
		case <-ctx.Done():
			return
		}
	}
}

// find makes one try.
func (l Locality) find(ctx context.Context) (string, error) {
	text, err := l.read(ctx)
	if err != nil {
		return "", err
	}
	zone := googleZone.ReplaceAllString(strings.TrimSpace(text), "")
	if len(zone) > maxZone || !zoneName().MatchString(zone) {
		return "", fmt.Errorf("invalid locality %.64q", zone)
	}
	return zone, nil
}

// write writes the zone to WriteFile, if that is set.
func (l Locality) write(zone string) error {
	if l.WriteFile == "" {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(l.WriteFile), "."+filepath.Base(l.WriteFile)+".*")
	if err != nil {
		return err
	}
	_, err = file.WriteString(zone + "\n")
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), l.WriteFile)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // after the rename it is gone
	}
	return err
}

func (l Locality) read(ctx context.Context) (string, error) {
	switch {
	case l.Value != "":
		return l.Value, nil
	case l.Variable != "":
		return l.Getenv(l.Variable), nil
	case l.File != "":
		file, err := os.Open(l.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		return bounded(file)
	}
	return l.ask(ctx)
}

// ask requests the metadata address without an HTTP proxy: it belongs to this machine.
func (l Locality) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL, http.NoBody)
	if err != nil {
		return "", err
	}
	for name, value := range l.Headers {
		req.Header.Set(name, value)
	}
	client := http.Client{
		Transport:     transport.Local(nil),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s returned status %d", l.URL, answer.StatusCode)
	}
	return bounded(answer.Body)
}

func bounded(r io.Reader) (string, error) {
	text, err := safefile.ReadAll(r, "the locality", maxLocality)
	return string(text), err
}
