package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// shortest is how long a watch lasts that did not fail.
const shortest = 5 * time.Second

// Observer gets what a [Follower] sees, by one goroutine. A method that blocks makes the API server
// wait.
type Observer interface {
	// Begin starts a list: each object of the collection follows as [Added], known or not.
	Begin()
	// See gets an object or a change, or a [Bookmark], which shows that a watch works. The object is
	// valid until See returns.
	See(Event)
	// Complete ends a list: an object that was not in it is gone. It is not called for a list that
	// fails; another Begin follows.
	Complete()
	// Away gets each failure, and how long the follower waits before it tries again. What was seen
	// stays as it is.
	Away(err error, wait time.Duration)
}

// Follower keeps up with a collection: one list, then a watch that goes on from there, and a list
// again when the API server asks for one (410). It waits after failures by the table of package
// ca.
type Follower struct {
	Client *Client
	// Call has the path of the collection and its selectors.
	Call Call
	// Observer gets all changes.
	Observer Observer
	// Version is where to go on: that of a list, or what was seen last. Read it only while Run
	// does not run. Default: begin with a list.
	Version string

	waits rotation.Waits
	since time.Time // of the first failure in a row
}

// Run follows the collection until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			f.recovered()
			continue
		}
		wait := f.waitAfter(err)
		f.Observer.Away(err, wait)
		rotation.Sleep(ctx, wait, clock.Wall, nil)
	}
}

func (f *Follower) recovered() { f.waits.Reset(); f.since = time.Time{} }

func (f *Follower) waitAfter(err error) time.Duration {
	now := time.Now()
	if f.since.IsZero() {
		f.since = now
	}
	return f.waits.After(err, now, 0, now.Sub(f.since))
}

// step lists, or watches once.
func (f *Follower) step(ctx context.Context) error {
	if f.Version == "" {
		return f.list(ctx)
	}
	begun := time.Now()
	err := f.Client.Watch(ctx, f.Call, f.Version, f.see)
	if Answered(err, http.StatusGone) && time.Since(begun) >= shortest {
		f.Version = ""
		return nil
	}
	if _, refused := errors.AsType[*StatusError](err); refused {
		f.Version = "" // it may be one that the server never had: it was restored from a backup
	}
	if time.Since(begun) >= shortest {
		f.recovered()
	} else if err == nil {
		err = ca.Errorf(ca.Unavailable, "%s ended a watch of %s at once", f.Client.host, f.Call.Path)
	}
	return err
}

func (f *Follower) list(ctx context.Context) (err error) {
	f.Observer.Begin()
	version, err := f.Client.List(ctx, f.Call, func(object json.RawMessage) error {
		f.Observer.See(Event{Type: Added, Object: object})
		return nil
	})
	if err != nil {
		return err
	}
	if version == "" {
		return ca.Errorf(ca.Internal, "%s listed %s without a version", f.Client.host, f.Call.Path)
	}
	f.Version = version
	f.Observer.Complete()
	return nil
}

// see remembers where to go on.
func (f *Follower) see(e Event) error {
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(e.Object, &object) != nil || object.Metadata.ResourceVersion == "" {
		f.Version = ""
		return ca.Errorf(ca.Internal, "%s sent an event without a version", f.Client.host)
	}
	f.Observer.See(e)
	f.Version = object.Metadata.ResourceVersion
	return nil
}
