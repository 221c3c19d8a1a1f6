package state

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// keepClaim is how often the holder of a claim counts, lostAfter is when it gives up a claim that it
	// could not count in, and runsOut when another machine takes over a claim that stands still. The
	// time between the last two is more than a Store may take.
	keepClaim = 2 * time.Second
	lostAfter = 8 * time.Second
	runsOut   = 15 * time.Second

	claimSuffix = ".claim"
	afterPrefix = ".after-"
	claimMagic  = "countersign claim 1 "
	claimMost   = 256
	// mostLinks bounds the claims that follow each other. Each is one whose holder was killed as it
	// took over the one before.
	mostLinks = 64
	// mostWatched bounds the claims of others that are remembered.
	mostWatched = 100_000
)

// errForeignClaim means that this program did not write a file that has the name of a claim.
var errForeignClaim = errors.New("it is not a claim")

// watched is the claim of another machine.
type watched struct {
	text  string
	since time.Time // monotonic: it has been the same
}

// link is a file of the claims of a name: the first one, or one that follows a claim that ran out.
type link struct {
	file, text, id string
}

// claimText returns the content of the file of a claim.
func claimText(id string, count uint64) string {
	return fmt.Sprintf("%s%s %020d\n", claimMagic, id, count)
}

// Claim implements the SharedStorage of package ondemand.
func (s *Shared) Claim(_ context.Context, name string) (_ secret.Claim, err error) {
	file := fileName(name)
	sub, err := s.subfolder(file, true)
	if err != nil {
		return nil, s.away(err)
	}
	defer func() { _ = sub.Close() }()
	first := strings.TrimSuffix(file, suffix) + claimSuffix
	links, err := s.claims(sub, first)
	if errors.Is(err, errForeignClaim) && s.standsStill(first, err.Error()) {
		s.foreign.Add(1)
		err = sub.Rename(first, unfinished+randomID()) // a file that no machine has made
	}
	if err != nil {
		return nil, s.away(err)
	}
	var before string
	if n := len(links); n > 0 {
		before = links[n-1].text
		if !s.standsStill(first, before) {
			return nil, errClaimed()
		}
	}
	c, err := newClaim(s, sub, first)
	if err != nil {
		return nil, s.away(err)
	}
	taken, err := c.take(sub, links)
	if err != nil || !taken {
		c.drop()
		if err != nil {
			return nil, s.away(err)
		}
		return nil, errClaimed()
	}
	s.forget(first)
	go c.keep()
	return c, nil
}

func errClaimed() error {
	return &ca.Error{Reason: ca.Unavailable, Message: secret.ErrClaimed.Error(), RetryAfter: time.Second, Err: secret.ErrClaimed}
}

// claims returns the claims of a name, the first one and those that follow; none if it is free.
func (s *Shared) claims(sub *os.Root, first string) (links []link, err error) {
	for file := first; len(links) < mostLinks; {
		text, err := s.text(sub, file, claimMost)
		if errors.Is(err, fs.ErrNotExist) {
			return links, nil
		}
		if _, system := errors.AsType[*fs.PathError](err); system && !broken(err) {
			return nil, err
		}
		id, ok := claimID(text)
		if err != nil || !ok {
			return nil, fmt.Errorf("%s: %w", file, errForeignClaim)
		}
		links = append(links, link{file, string(text), id})
		file = first + afterPrefix + id
	}
	return nil, fmt.Errorf("%s has more than %d claims that ran out: remove its files", first, mostLinks)
}

// claimID returns the ID in the file of a claim.
func claimID(text []byte) (id string, ok bool) {
	rest, ours := bytes.CutPrefix(text, []byte(claimMagic))
	if !ours || len(text) != len(claimText(strings.Repeat("0", 2*idBytes), 0)) {
		return "", false
	}
	id = string(rest[:2*idBytes])
	_, err := hex.DecodeString(id)
	return id, err == nil
}

// standsStill reports whether a claim has been the same for so long that its holder must have given
// it up.
func (s *Shared) standsStill(first, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.watched[first]; before.text == text {
		return time.Since(before.since) >= runsOut
	}
	if len(s.watched) >= mostWatched {
		clear(s.watched) // they run out later
	}
	s.watched[first] = watched{text, time.Now()}
	return false
}

func (s *Shared) forget(first string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watched, first)
}

// claim is a claim of this machine.
type claim struct {
	store     *Shared
	id, first string
	fresh     string   // its first name
	file      *os.File // is written to under any name
	made      time.Time

	mu    sync.Mutex
	kept  time.Time // when it was counted last, or just before that
	count uint64
	lost  bool
	over  chan struct{} // closed by Release
}

// newClaim makes the file of a claim under a name of its own.
func newClaim(s *Shared, sub *os.Root, first string) (*claim, error) {
	c := &claim{store: s, id: randomID(), first: first, kept: time.Now(), over: make(chan struct{})}
	c.fresh = unfinished + c.id
	file, err := sub.OpenFile(c.fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	c.file = file
	err = c.write(0)
	if err == nil {
		err = c.date()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), sub.RemoveAll(c.fresh))
	}
	return c, nil
}

// date takes the time of the file that was just written, which the server of a network file system sets.
func (c *claim) date() error {
	info, err := c.file.Stat()
	if err == nil {
		c.made = info.ModTime()
	}
	return err
}

func (c *claim) write(count uint64) error {
	if _, err := c.file.WriteAt([]byte(claimText(c.id, count)), 0); err != nil {
		return err
	}
	return c.file.Sync()
}

func (c *claim) drop() { _ = c.file.Close() }

// take makes the file the claim of its name. links are the claims that ran out; each can be followed by
// one file only, so that one machine takes it over.
func (c *claim) take(sub *os.Root, links []link) (bool, error) {
	name := c.first
	if n := len(links); n > 0 {
		name += afterPrefix + links[n-1].id
	}
	err := sub.Link(c.fresh, name)
	err = errors.Join(err, sub.Remove(c.fresh))
	if c.is(sub, name) { // over NFS, an error may be that of a repeated request
		err = nil
	} else if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil || len(links) == 0 {
		return err == nil, err
	}
	return c.succeed(sub, name, links)
}

// succeed replaces the claims that ran out, unless they have been released, replaced or counted in since.
func (c *claim) succeed(sub *os.Root, name string, links []link) (bool, error) {
	now, err := c.store.claims(sub, c.first)
	same := err == nil && len(now) == len(links)+1 && now[len(links)].id == c.id
	for i := 0; same && i < len(links); i++ {
		same = now[i].text == links[i].text
	}
	if !same {
		return false, errors.Join(err, sub.Remove(name))
	}
	if err := sub.Rename(name, c.first); err != nil {
		return false, errors.Join(err, sub.RemoveAll(name))
	}
	for _, old := range links[1:] {
		_ = sub.Remove(old.file) // it is litter by now
	}
	return true, nil
}
