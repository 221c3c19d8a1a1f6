package agent

import (
	"os"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// tokenInterval is how often credential files are checked for changes. They are read for
// each request anyway; a change only ends the wait after a rejected credential.
const tokenInterval = 5 * time.Second

// certificateSettings are the settings by which providers name their client certificate.
var certificateSettings = []string{"client_cert_file", "client_key_file"}

// tokenFiles remembers the files of the providers' tokens and client certificates. It is
// safe for concurrent use.
type tokenFiles struct {
	mu    sync.Mutex
	known map[tokenFile]os.FileInfo // nil: not there
}

type tokenFile struct{ provider, path string }

func newTokenFiles(c config.Config) *tokenFiles {
	files := &tokenFiles{}
	files.take(c)
	return files
}

// take replaces the files, before the new configuration applies, so that no later change is
// missed.
func (files *tokenFiles) take(c config.Config) {
	known := map[tokenFile]os.FileInfo{}
	for _, entry := range c.Providers {
		for _, source := range entry.TokenSources() {
			if source.File != "" {
				known[tokenFile{entry.Name, source.File}] = stat(source.File)
			}
		}
		for _, setting := range certificateSettings {
			if path, ok := entry.Settings[setting].(string); ok && path != "" {
				known[tokenFile{entry.Name, path}] = stat(path)
			}
		}
	}
	files.mu.Lock()
	defer files.mu.Unlock()
	files.known = known
}

// stat follows links, as those of a projected volume change instead of the file.
func stat(path string) os.FileInfo {
	info, err := safefile.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// changed returns the providers whose files exist and differ from the last check.
func (files *tokenFiles) changed() (providers []string) {
	files.mu.Lock()
	defer files.mu.Unlock()
	for file, was := range files.known {
		now := stat(file.path)
		files.known[file] = now
		if now != nil && (was == nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) || was.Size() != now.Size()) {
			providers = append(providers, file.provider)
		}
	}
	slices.Sort(providers)
	return slices.Compact(providers) // a certificate and its key change together
}

// watch calls retry for every provider whose token has changed, until stop, which waits for
// its end.
func (files *tokenFiles) watch(interval time.Duration, retry func(provider string)) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			for _, provider := range files.changed() {
				retry(provider)
			}
		}
	}()
	return func() { close(quit); <-done }
}
