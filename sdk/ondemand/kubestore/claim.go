package kubestore

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// claimFor is how long others observe that a claim is not renewed before they take it over, and
	// heldFor how long its holder relies on it. They see a renewal after it was sent, so the
	// difference is for clocks that run at different speeds.
	claimFor = 12 * time.Second
	heldFor  = 10 * time.Second
	// renewEvery is the time between two renewals, and renewAgain that after one that failed.
	renewEvery = 3 * time.Second
	renewAgain = time.Second
	// releaseTimeout bounds the calls after the caller has left.
	releaseTimeout = 2 * time.Second
)

// lease is the spec of a coordination.k8s.io Lease.
type lease struct {
	HolderIdentity string `json:"holderIdentity,omitempty"`
	Seconds        int32  `json:"leaseDurationSeconds,omitempty"`
	AcquireTime    string `json:"acquireTime,omitempty"`
	RenewTime      string `json:"renewTime,omitempty"`
	Transitions    int32  `json:"leaseTransitions,omitempty"`
}

const microTime = "2006-01-02T15:04:05.000000Z07:00"

// observation is the claim of another process, and since when it is as it is, by our own clock.
type observation struct {
	mark  string
	since time.Time
}

// claim is a Lease that we hold.
type claim struct {
	store *Store
	name  string
	stop  context.CancelFunc
	ended chan struct{}

	// The Store's lock guards these: the version of the record, once it was seen; one that is missing
	// has none.
	seen   bool
	record metadata

	mu    sync.Mutex
	lease object
	left  rotation.Pause // until it may be another's
}

// Claim implements ondemand.SharedStorage. A claim is a Lease that is created, renewed every few
// seconds and deleted; of another's it is observed whether that changes.
func (s *Store) Claim(ctx context.Context, name string) (secret.Claim, error) {
	c := &claim{store: s, name: name, ended: make(chan struct{})}
	if !s.enter(c) {
		return nil, secret.ErrClaimed
	}
	if err := c.take(ctx); err != nil {
		s.leave(c)
		return nil, err
	}
	kept, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.keep(kept)
	return c, nil
}

func (s *Store) enter(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.name] != nil {
		return false
	}
	s.claims[c.name] = c
	return true
}

func (s *Store) leave(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.name] == c {
		delete(s.claims, c.name)
	}
}

// take creates the Lease, or takes it over.
func (c *claim) take(ctx context.Context) error {
	s := c.store
	for range tries {
		err := c.write(ctx, object{
			APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
			Metadata: metadata{Name: objectName(c.name), Labels: labels(kindClaim), Annotations: map[string]string{nameNote: c.name}},
			Spec:     &lease{AcquireTime: clock.Wall().UTC().Format(microTime)},
		})
		if !kubeapi.Answered(err, http.StatusConflict) {
			return unknown(err)
		}
		found, err := s.get(ctx, s.leases()+"/"+objectName(c.name))
		if err != nil {
			return err
		}
		if found != nil { // otherwise it was released just now
			return c.takeOver(ctx, *found)
		}
	}
	return secret.ErrClaimed
}

// takeOver takes a Lease that its holder has stopped to renew.
func (c *claim) takeOver(ctx context.Context, found object) error {
	s := c.store
	if !found.Metadata.is(kindClaim) || found.Metadata.Annotations[nameNote] != c.name || found.Spec == nil {
		return unknown(s.isForeign("Lease", found))
	}
	if found.Spec.HolderIdentity != s.holder && !s.lapsed(c.name, found) {
		return secret.ErrClaimed
	}
	found.Spec.Transitions++
	err := c.write(ctx, found)
	if raced(err) {
		return secret.ErrClaimed
	}
	if err == nil {
		err = c.fence(ctx)
	}
	if err != nil {
		c.drop()
	}
	return unknown(err)
}

// lapsed reports whether we have observed a Lease long enough. Times in it are compared for change
// alone: the clocks of two machines may differ.
func (s *Store) lapsed(name string, found object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := found.Metadata.UID + " " + found.Spec.HolderIdentity + " " + found.Spec.RenewTime
	before, _ := s.observed.Get(name)
	if before.mark != mark {
		s.observed.Put(name, observation{mark, time.Now()})
		return false
	}
	return time.Since(before.since) >= claimFor
}

// fence changes the record, or makes an empty one, so that a write that the holder of before has
// sent already fails.
func (c *claim) fence(ctx context.Context) error {
	s := c.store
	for range tries {
		found, err := s.find(ctx, c.name)
		if err != nil {
			return err
		}
		if found == nil {
			empty := recordOf(secret.Entry{Name: c.name}, secret.Record{})
			found = &empty
		}
		found.Metadata.Annotations[claimNote] = rand.Text()
		stored, err := s.put(ctx, s.secrets(), *found)
		if err == nil {
			s.saw(c.name, &stored)
			return nil
		}
		if !raced(err) {
			return err
		}
	}
	return errRaced
}

// write creates or replaces the Lease as ours. What the API server was sent counts from before it
// was sent.
func (c *claim) write(ctx context.Context, o object) error {
	s := c.store
	begun := rotation.NewPause(heldFor, rotation.Now(clock.Wall()))
	spec := *o.Spec
	spec.HolderIdentity, spec.Seconds, spec.RenewTime = s.holder, int32(claimFor/time.Second), time.Now().UTC().Format(microTime)
	o.Spec = &spec
	stored, err := s.put(ctx, s.leases(), o)
	if err != nil {
		return err
	}
	if stored.Spec == nil || stored.Spec.HolderIdentity != s.holder {
		return ca.Errorf(ca.Internal, "the API server stored another Lease than it was sent")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease, c.left = stored, begun
	return nil
}

// keep renews the claim until it is released or lost.
func (c *claim) keep(ctx context.Context) {
	defer close(c.ended)
	for pause := renewEvery; c.Held(); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if !c.Held() {
			return // the machine was suspended, so that others may have it
		}
		if pause = renewEvery; c.renew(ctx) != nil {
			pause = renewAgain
		}
	}
}

func (c *claim) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewEvery) // a call that hangs leaves time for another
	defer cancel()
	c.mu.Lock()
	o := c.lease
	c.mu.Unlock()
	err := c.write(ctx, o)
	if raced(err) && !c.refresh(ctx) {
		c.lose()
	}
	return err
}

// refresh reads a Lease that another client has changed, and reports whether it may still be ours.
func (c *claim) refresh(ctx context.Context) bool {
	found, err := c.store.get(ctx, c.store.leases()+"/"+objectName(c.name))
	if err != nil {
		return true
	}
	if found == nil || found.Spec == nil || found.Spec.HolderIdentity != c.store.holder {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease = *found
	return true
}

func (c *claim) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = rotation.Pause{}
}

// Held implements [secret.Claim]. Either clock ends it, as the monotonic one stops while the machine
// is suspended.
func (c *claim) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.left.Over(rotation.Now(clock.Wall()))
}

// Made implements [secret.Claim], by the clock of the API server. A Lease that was taken over is older.
func (c *claim) Made() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := time.Parse(time.RFC3339, c.lease.Metadata.Created)
	if err != nil {
		return time.Time{}
	}
	return made
}

// Release implements [secret.Claim].
func (c *claim) Release(ctx context.Context) error {
	c.stop()
	<-c.ended
	defer c.store.leave(c)
	for range tries {
		if !c.Held() {
			return nil
		}
		c.mu.Lock()
		at := c.lease.Metadata
		c.mu.Unlock()
		err := c.store.client.Delete(ctx, c.store.leases()+"/"+at.Name, at.UID, at.ResourceVersion)
		if !kubeapi.Answered(err, http.StatusConflict) {
			return unknown(err)
		}
		if !c.refresh(ctx) { // the last renewal was cut off, or another has it
			return nil
		}
	}
	return errRaced
}

// drop gives up a Lease that was taken over in vain.
func (c *claim) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	at := c.lease.Metadata
	_ = c.store.client.Delete(ctx, c.store.leases()+"/"+at.Name, at.UID, at.ResourceVersion) // it runs out otherwise
}
