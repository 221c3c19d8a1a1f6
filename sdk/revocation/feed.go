package revocation

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Feed delivers lists: those that a CA publishes (see [Poll]), or that a Workload API sends.
type Feed struct {
	// Name identifies their publisher, in logs and for [Set.Retry].
	Name string
	// Follow calls take with the lists, as [pki.ParseCRLs] reads them, at first and whenever
	// they change, or with the error why there are none now, until ctx ends. Empty lists mean
	// that the CA has revoked nothing and publishes no list. Follow makes one call of take at a
	// time.
	Follow func(ctx context.Context, take func(lists []byte, err error))
}

// reply is the last reply of a feed, and the failure since.
type reply struct {
	content
	fault string
}

// listener follows one feed for one bundle.
type listener struct {
	feed Feed
	take func(lists []byte, err error)

	mu    sync.Mutex
	again context.CancelFunc // ends the Follow in progress, and another one begins
}

func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		following, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		l.again = cancel
		l.mu.Unlock()
		l.feed.Follow(following, l.take)
		<-following.Done() // a Follow that returned early delivers nothing more
		cancel()
	}
}

// Retry follows the feeds of that name again, for example after their CA has become available; an
// empty name means all. It returns at once. A nil Set has no feeds.
func (s *Set) Retry(name string) {
	if s == nil {
		return
	}
	for _, b := range s.current() {
		for _, l := range b.feeds {
			if name == "" || l.feed.Name == name {
				l.retry()
			}
		}
	}
}

func (l *listener) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again != nil {
		l.again()
	}
}

// hear takes a reply of feed i. Lists that cannot be read leave its previous reply in place.
func (b *bundle) hear(i int, lists []byte, err error) {
	b.mu.Lock()
	last := b.replies[i].content // replaced by the feed's goroutine alone
	b.mu.Unlock()
	next := reply{content: last}
	if err == nil && !bytes.Equal(lists, last.text) {
		next.content, err = parsed(lists)
	}
	if err != nil {
		next = reply{last, text.Clean(fmt.Sprintf("%s: %v", b.spec.Feeds[i].Name, err))}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !bytes.Equal(next.text, last.text) {
		b.reads++
	}
	b.replies[i] = next
}

// parsed parses a feed's reply.
func parsed(lists []byte) (content, error) {
	if len(lists) == 0 {
		return content{}, nil
	}
	all, issuers, err := pki.ParseCRLs(lists)
	return content{bytes.Clone(lists), all, issuers}, err
}
