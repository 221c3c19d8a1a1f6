package main

import (
	"os"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

// tokenInterval is the time between two looks at a token file. It is read for each
// request anyhow: this is for what waits because its token was not accepted.
const tokenInterval = 5 * time.Second

// tokenFiles remembers the files of the providers' tokens.
type tokenFiles map[string]map[string]os.FileInfo // by provider and path; nil: not there

func newTokenFiles(c config.Config) tokenFiles {
	files := tokenFiles{}
	for _, entry := range c.Providers {
		for _, source := range entry.TokenSources() {
			if source.File == "" {
				continue
			}
			if files[entry.Name] == nil {
				files[entry.Name] = map[string]os.FileInfo{}
			}
			files[entry.Name][source.File] = stat(source.File)
		}
	}
	return files
}

// stat follows links, as those of a projected volume change instead of the file.
func stat(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// changed returns the providers whose files are there and others than at the last look.
func (files tokenFiles) changed() (providers []string) {
	for provider, known := range files {
		for path, was := range known {
			now := stat(path)
			known[path] = now
			if now != nil && (was == nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) || was.Size() != now.Size()) {
				providers = append(providers, provider)
			}
		}
	}
	return providers
}

// watch has retry called for a provider whose token has changed, until stop, which
// returns when it has ended.
func (files tokenFiles) watch(interval time.Duration, retry func(provider string)) (stop func()) {
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
