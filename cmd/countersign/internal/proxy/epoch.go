package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// baseID is the ID by which the epochs of one Envoy find each other. The first epoch chooses
// it and writes it to a file.
type baseID struct{ dir string }

func newBaseID(runtimeDir string) (*baseID, error) {
	dir, err := os.MkdirTemp(runtimeDir, "countersign-proxy")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the proxy's base ID: %w", err)
	}
	return &baseID{dir}, nil
}

func (b *baseID) path() string { return filepath.Join(b.dir, "base-id") }

var digits = regexp.MustCompile(`^[0-9]{1,10}$`)

// read returns the id, once Envoy has written it.
func (b *baseID) read() (string, error) {
	text, err := os.ReadFile(b.path())
	if err != nil {
		return "", err
	}
	if id := strings.TrimSpace(string(text)); digits.MatchString(id) {
		return id, nil
	}
	return "", errors.New("not a number")
}

// await waits until there is an ID: Envoy writes it some time after its start.
func (b *baseID) await(ctx context.Context) error {
	for {
		_, err := b.read()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the running proxy has not written a base ID, so it cannot be hot-restarted: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// sharedMemory is the shared memory of Envoy's epochs (shm_open of the base ID times ten),
// which Envoy never removes.
const sharedMemory = "/dev/shm/envoy_shared_memory_"

// remove cleans up when no epoch is left.
func (b *baseID) remove() {
	if id, err := b.read(); err == nil {
		_ = os.Remove(sharedMemory + id + "0") // it may not exist
	}
	_ = os.RemoveAll(b.dir)
}

// follow makes l the epoch after another, or the first of a new base ID.
func (l *life) follow(after *life, runtimeDir string) (err error) {
	if after != nil {
		l.epoch, l.base = after.epoch+1, after.base
		return nil
	}
	l.base, err = newBaseID(runtimeDir)
	return err
}

// epochFlags returns Envoy's flags for a hot restart.
func (l *life) epochFlags(r Reload) []string {
	flags := []string{
		"--restart-epoch", strconv.Itoa(l.epoch),
		"--drain-time-s", seconds(r.DrainTime), "--parent-shutdown-time-s", seconds(r.ParentShutdownTime),
	}
	if l.epoch == 0 {
		return append(flags, "--use-dynamic-base-id", "--base-id-path", l.base.path())
	}
	id, _ := l.base.read() // await has succeeded
	return append(flags, "--base-id", id)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
