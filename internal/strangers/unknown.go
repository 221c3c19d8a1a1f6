package strangers

import (
	"net"
	"slices"
	"sync"
	"time"
)

// patience is how long a connection keeps its place from newer ones of its own address: a handshake
// takes less, and one that is idle for longer can connect again.
const patience = time.Second

// Unknown bounds the connections whose client is not known yet. A connection is closed unless [Known]
// is called for it within a time. Where all places are taken, the newest connection of the address
// that has the most gives way to that of another address; where those of an address are, the oldest
// gives way to a newer one, once it had its time. It is safe for concurrent use.
type Unknown struct {
	most, ofOne int
	within      time.Duration

	mu  sync.Mutex
	all int
	by  map[string][]*counted // oldest first
}

// NewUnknown returns a bound for connections of all clients and of one address. Each has to be known
// within the time.
func NewUnknown(most, ofOne int, within time.Duration) *Unknown {
	return &Unknown{most: most, ofOne: ofOne, within: within, by: map[string][]*counted{}}
}

// Known lets the connection of a peer, whose address a connection of a [Listener] returned, last: a
// call on it was authenticated. It does nothing for other addresses.
func Known(peer net.Addr) {
	if of, ok := peer.(address); ok {
		of.conn.unknown.remove(of.conn)
	}
}

// address leads from the peer of a call to its connection.
type address struct {
	net.Addr
	conn *counted
}

// enter takes a place until the connection is known or closed, or returns why there is none. It
// returns the connection that gives way, if one has to.
func (u *Unknown) enter(c *counted) (out *counted, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.by[c.host]
	switch {
	case len(own) >= u.ofOne:
		if time.Since(own[0].since) < patience {
			return nil, ErrFullForOne
		}
		out = own[0]
	case u.all >= u.most:
		fullest := u.fullest()
		if len(fullest) <= len(own)+1 {
			return nil, ErrFull
		}
		out = fullest[len(fullest)-1]
	}
	if out != nil {
		u.drop(out)
	}
	u.all++
	u.by[c.host] = append(u.by[c.host], c)
	c.late = time.AfterFunc(u.within, func() {
		if u.remove(c) {
			_ = c.Close()
		}
	})
	return out, nil
}

func (u *Unknown) fullest() (most []*counted) {
	for _, of := range u.by {
		if len(of) > len(most) {
			most = of
		}
	}
	return most
}

// remove frees the place of a connection, and reports whether it had one.
func (u *Unknown) remove(c *counted) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.drop(c)
}

func (u *Unknown) drop(c *counted) bool {
	at := slices.Index(u.by[c.host], c)
	if at < 0 {
		return false
	}
	u.all--
	c.late.Stop()
	if u.by[c.host] = slices.Delete(u.by[c.host], at, at+1); len(u.by[c.host]) == 0 {
		delete(u.by, c.host)
	}
	return true
}
