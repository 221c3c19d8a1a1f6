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

// baseID is what the epochs of one Envoy find each other by. The first one draws it
// and writes it to a file; all share it.
type baseID struct{ dir string }

func newBaseID(runtimeDir string) (*baseID, error) {
	dir, err := os.MkdirTemp(runtimeDir, "countersign-proxy")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the proxy's base id: %w", err)
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
	return "", errors.New("it is no number")
}

// await returns when there is an id: an Envoy that was just started has none yet.
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

// sharedMemory is where Envoy keeps what its epochs share (shm_open of the base id
// times ten). It never removes it.
const sharedMemory = "/dev/shm/envoy_shared_memory_"

// remove is for when no epoch is left.
func (b *baseID) remove() {
	if id, err := b.read(); err == nil {
		_ = os.Remove(sharedMemory + id + "0") // it may never have got so far
	}
	_ = os.RemoveAll(b.dir)
}

// follow makes l the epoch after another, or the first of a new base id.
func (l *life) follow(after *life, runtimeDir string) (err error) {
	if after != nil {
		l.epoch, l.base = after.epoch+1, after.base
		return nil
	}
	l.base, err = newBaseID(runtimeDir)
	return err
}

// epochFlags are Envoy's, for a hot restart.
func (l *life) epochFlags(r Reload) []string {
	flags := []string{
		"--restart-epoch", strconv.Itoa(l.epoch),
		"--drain-time-s", seconds(r.DrainTime), "--parent-shutdown-time-s", seconds(r.ParentShutdownTime),
	}
	if l.epoch == 0 {
		return append(flags, "--use-dynamic-base-id", "--base-id-path", l.base.path())
	}
	id, _ := l.base.read() // it was awaited
	return append(flags, "--base-id", id)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
