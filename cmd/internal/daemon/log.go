// Package daemon is what countersign-ra and countersign-discovery have in common: commands ([Flags],
// [Explain], [Schema], [Status]), the log and the operator's pages ([Begin]), and the
// providers' processes ([FindProviders]).
package daemon

import (
	"io"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/internal/host/protect"
	"github.com/countersign-dev/countersign/internal/memory"
)

// Begin is the first thing a daemon does: it protects the process, as it will hold keys and
// tokens, and opens the log, which goes to stderr, and the pages. Close the pages.
func Begin(stderr io.Writer, l agent.Log, s settings.Status) (*slog.Logger, *Pages, error) {
	log := newLog(stderr, l)
	memory.SetLimit()
	if err := protect.Process(); err != nil {
		return nil, nil, err
	}
	cli.WarnSystem(log)
	if missing := protect.Missing(); missing != "" {
		log.Warn("protection unavailable on this system", "missing", missing)
	}
	pages, err := listen(s, log)
	if err != nil {
		return nil, nil, cli.Wrong(err)
	}
	return log, pages, nil
}

// newLog returns a log to w. The settings are checked ones.
func newLog(w io.Writer, c agent.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // package settings has checked it
	}
	return cli.NewLog(w, c.Format, level)
}
