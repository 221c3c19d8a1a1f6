package main

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// queryTimeout bounds one read of the table: a database that hangs delays the next read no longer.
const queryTimeout = 30 * time.Second

// follow keeps secrets as the table has them: it reads it every interval until ctx ends. While the
// database is away, what was read last is served.
func follow(ctx context.Context, db *sql.DB, secrets *secret.Map, interval time.Duration) {
	known := map[string]bool{}
	for ctx.Err() == nil {
		if err := read(ctx, db, secrets, known); err != nil {
			slog.WarnContext(ctx, "failed to read the certificates", "error", err)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
		}
	}
}

// read sets each row and deletes the names that have none any more.
func read(ctx context.Context, db *sql.DB, secrets *secret.Map, known map[string]bool) error {
	ctx, stop := context.WithTimeout(ctx, queryTimeout)
	defer stop()
	rows, err := db.QueryContext(ctx, "SELECT name, chain, private_key FROM certificates")
	if err != nil {
		return err
	}
	defer rows.Close()
	there := map[string]bool{}
	for rows.Next() {
		var name string
		var chain, key []byte // PEM
		if err := rows.Scan(&name, &chain, &key); err != nil {
			return err
		}
		there[name], known[name] = true, true
		if item, err := secret.NewKeyPair(name, "database", chain, key); err != nil {
			slog.WarnContext(ctx, "invalid certificate; the one before is served", "name", name, "error", err)
		} else {
			secrets.Set(name, item)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for name := range known {
		if !there[name] {
			secrets.Delete(name)
			delete(known, name)
		}
	}
	return nil
}
