// Command sds-database serves the certificates of a database to Envoy, over SDS. It reads the table
//
//	CREATE TABLE certificates (name TEXT PRIMARY KEY, chain BYTEA, private_key BYTEA)
//
// where both columns are PEM. Import the driver of your database, as package database/sql describes.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sds-database:", err)
		os.Exit(1)
	}
}

func run() error {
	driver := flag.String("driver", "", "name of the database's driver")
	source := flag.String("database", "", "the driver's name for the database")
	socket := flag.String("socket", "sds.sock", "Unix socket to serve on")
	interval := flag.Duration("interval", 10*time.Second, "how often to read the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := sql.Open(*driver, *source)
	if err != nil {
		return err
	}
	defer db.Close()
	return serve(ctx, db, *socket, *interval)
}

// serve serves the table until ctx ends.
func serve(ctx context.Context, db *sql.DB, socket string, interval time.Duration) error {
	var secrets secret.Map
	server, err := sds.Listen(sds.Config{Path: socket}, &secrets)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() { defer close(followed); follow(ctx, db, &secrets, interval) }()
	defer func() { stop(); <-followed }()
	defer context.AfterFunc(ctx, func() { end(server) })()
	return server.Serve()
}

// end gives the streams a second to end.
func end(server *sds.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = server.Close(ctx)
}
