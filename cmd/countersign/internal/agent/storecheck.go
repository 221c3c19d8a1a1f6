package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// checkName is a name that no client can have.
	checkName = "check.invalid"
	// storeTimeout bounds the check of a store: a folder on NFS that is away hangs.
	storeTimeout = 15 * time.Second
)

// StoreFaults reaches the store that machines share and returns what keeps it from being used. It claims a
// name in a folder and releases it; in Kubernetes, nothing is stored.
func StoreFaults(ctx context.Context, c config.Store) []string {
	log := slog.New(slog.DiscardHandler)
	check := func(ctx context.Context) error { return checkSharedFolder(ctx, c, log) }
	if c.Folder == "" {
		check = func(ctx context.Context) error { return checkKubernetes(ctx, c.Kubernetes, log) }
	}
	_, err := call.Do(ctx, storeTimeout, call.NewTurn(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, check(ctx)
	})
	if err == nil {
		return nil
	}
	return strings.Split("store: "+strings.ReplaceAll(err.Error(), "\n", "\nstore: "), "\n")
}

func checkSharedFolder(ctx context.Context, c config.Store, log *slog.Logger) error {
	folder, err := openShared(c, log)
	if err != nil {
		return err
	}
	claim, err := folder.Claim(ctx, checkName)
	if errors.Is(err, secret.ErrClaimed) { // by another check
		return nil
	}
	if err != nil {
		return err
	}
	return claim.Release(ctx)
}

func checkKubernetes(ctx context.Context, c config.StoreKubernetes, log *slog.Logger) error {
	if c.Namespace == "" {
		return errors.New("none is configured")
	}
	store, err := c.Open("", log)
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	defer store.Close()
	return store.Check(ctx)
}
