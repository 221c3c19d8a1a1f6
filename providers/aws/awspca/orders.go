package awspca

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxOrders bounds the orders that are remembered, each for orderLife.
	maxOrders = 4096
	orderLife = time.Hour
	// repeatTime is how long a retry without an answer repeats the times of the first try, so
	// that it is the same request. It is less than the service remembers a token, 5 minutes,
	// and than a certificate may be backdated.
	repeatTime = 2 * time.Minute
	// tokenLength is the service's limit.
	tokenLength = 36
)

// idempotencyToken is the same for each try of a request: the service makes one certificate
// for the calls with one token within 5 minutes.
func idempotencyToken(id string) string {
	if len(id) == tokenLength {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:tokenLength]
}

type orderKey [sha256.Size]byte

// keyOf identifies the request and who may have its certificate: the one with its key.
func keyOf(req ca.SignRequest) orderKey {
	return sha256.Sum256(append([]byte(req.ID+"\x00"), req.CSR...))
}

// order is what is known of a request that was sent.
type order struct {
	begun time.Time // of the first try
	arn   string    // of the certificate; empty until the service answered
}

// orders remembers the newest orders, so that a retry asks for the certificate of the first
// try. It is safe for concurrent use.
type orders struct {
	mu  sync.Mutex
	all map[orderKey]order
}

func newOrders() *orders { return &orders{all: map[orderKey]order{}} }

// of returns the order of a request, which is new if there is none to go on with.
func (o *orders) of(key orderKey, now time.Time) order {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, ok := o.all[key]
	if !ok || found.over(now) {
		found = order{begun: now}
		delete(o.all, key)
		o.makeRoom(now)
		o.all[key] = found
	}
	return found
}

func (o order) over(now time.Time) bool {
	life := orderLife
	if o.arn == "" {
		life = repeatTime
	}
	return now.Sub(o.begun) > life || now.Before(o.begun)
}

// makeRoom removes orders that are over and, if there are still too many, one more.
func (o *orders) makeRoom(now time.Time) {
	if len(o.all) < maxOrders {
		return
	}
	var one orderKey
	for key, other := range o.all {
		if other.over(now) {
			delete(o.all, key)
		}
		one = key
	}
	if len(o.all) >= maxOrders {
		delete(o.all, one)
	}
}

func (o *orders) placed(key orderKey, with order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[key] = with
}

func (o *orders) drop(key orderKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, key)
}
