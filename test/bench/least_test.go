package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/test/figures"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

const leastStarts = 20

// least measures what a provider costs that does no work: its binary, the way from the
// start to ready, and what its idle process holds.
func (b *bench) least() error {
	settings, err := b.fixedSettings()
	if err != nil {
		return err
	}
	var took []time.Duration
	for range leastStarts {
		began := time.Now()
		p, err := b.openFixed(settings)
		if err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := p.Close(); err != nil {
			return err
		}
	}
	size, err := os.Stat(filepath.Join(b.root, "countersign-provider-fixed"))
	if err != nil {
		return err
	}
	row("binary of a provider that does no work", fmt.Sprintf("%.1f MB", float64(size.Size())/1e6))
	row("… from its start, hashed and copied, to ready", ms(median(took)))
	return b.leastMemory(settings)
}

func (b *bench) leastMemory(settings map[string]any) error {
	p, err := b.openFixed(settings)
	if err != nil {
		return err
	}
	time.Sleep(settle)
	kib, err := figures.Resident(p.Status().PID)
	row("… resident memory of its idle process", fmt.Sprintf("%.1f MiB", float64(kib)/1024))
	return errors.Join(err, p.Close())
}

// fixedSettings are those of the provider that always answers the same.
func (b *bench) fixedSettings() (map[string]any, error) {
	_, reply, err := b.example()
	return map[string]any{"chain": string(reply.Chain), "roots": string(reply.Roots)}, err
}

func (b *bench) openFixed(settings map[string]any) (*pluginhost.Provider, error) {
	return pluginhost.Open(context.Background(), pluginhost.Options{Dirs: []string{b.root}, Dev: true}, pluginhost.Entry{Name: "fixed", Settings: settings})
}
