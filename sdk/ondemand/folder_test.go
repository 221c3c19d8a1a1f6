package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

var _ ondemand.SharedStorage = (*state.Shared)(nil)

// Two Sets share a folder on a disk. One ends in mid-order, and leaves its claim.
func TestSetsShareAFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a := &authority{CA: catest.NewCA(catest.Options{})}
		left := false
		open := func() *engine {
			return newEngine(t, func(e *engine, c *ondemand.Config) {
				shared, err := state.OpenShared(folder, []byte(logKey), slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				e.ca, c.Storage = a, leavesClaims{shared, &left}
				e.useCA(a)
			})
		}
		first, second := open(), open()
		a.hang.Store(true)
		first.subscribe(shopA)
		for range 100 {
			if time.Sleep(10 * time.Millisecond); a.hung.Load() != nil {
				break
			}
		}
		first.Close()
		a.hang.Store(false)
		began := time.Now()
		for time.Since(began) < 30*time.Second {
			second.subscribe(shopA)
			if _, err := second.Peek(secret.Caller{}, shopA); err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		item := second.has(shopA)
		if got := second.Status().Storage; got == nil || *got != (secret.StorageStatus{}) {
			t.Errorf("%+v", got)
		}
		first.start()
		first.subscribe(shopA)
		time.Sleep(2 * time.Second)
		if got := first.has(shopA); got.Fingerprint != item.Fingerprint {
			t.Error("it was ordered again after a restart")
		}
		n := 0
		a.ids.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d orders, want one", n)
		}
	})
}

// leavesClaims leaves the first claim where it is, as a kill of its machine does.
type leavesClaims struct {
	*state.Shared
	left *bool
}

func (l leavesClaims) Claim(ctx context.Context, name string) (secret.Claim, error) {
	c, err := l.Shared.Claim(ctx, name)
	if err == nil && !*l.left {
		*l.left = true
		return leftClaim{c, l.String()}, nil
	}
	return c, err
}

type leftClaim struct {
	secret.Claim
	folder string
}

func (l leftClaim) Release(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(l.folder, "??", "*.claim"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%q, %w", files, err)
	}
	text, err := os.ReadFile(files[0])
	return errors.Join(err, l.Claim.Release(ctx), os.WriteFile(files[0], text, 0o600))
}
