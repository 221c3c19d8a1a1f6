package providertest

import (
	"context"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/reference"
)

// A line may be on its way when its call has ended: the log is complete when nothing has come for
// quiet, or after patience.
const (
	quiet    = 50 * time.Millisecond
	patience = time.Second
)

// logged marks the place, and returns a function for what the provider has written since.
func (r *rig) logged() func() []string {
	mark := r.seen.tail.Mark()
	return func() []string {
		end := time.Now().Add(patience)
		for last := -1; last != r.seen.tail.Mark() && time.Now().Before(end); time.Sleep(quiet) {
			last = r.seen.tail.Mark()
		}
		return r.seen.tail.Since(mark, r.withoutSecrets())
	}
}

// withoutSecrets returns a function that replaces the kit's secret settings; all settings, where
// the schema cannot be read.
func (r *rig) withoutSecrets() func(string) string {
	var pairs []string
	schema, err := r.schema()
	paths, malformed := reference.SecretPaths(schema)
	if err != nil || malformed != nil {
		paths = reference.Paths{"/*"}
	}
	for _, secret := range paths.Texts(r.entry.Settings) {
		pairs = append(pairs, secret, "(secret)")
	}
	return strings.NewReplacer(pairs...).Replace
}

// askSchema starts a process for the schema alone.
func (r *rig) askSchema() (string, error) {
	if len(r.entry.Settings) == 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	opts := r.opts
	opts.Stderr = nil
	probe, err := r.probe(ctx, opts)
	if err != nil {
		return "", err
	}
	defer probe.Close()
	m, err := probe.Metadata(ctx)
	return m.SettingsSchema, err
}
