package kubeca

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// session is for one call of the host: create, watch and delete share its connection. The
// caller closes it.
type session struct {
	access
	*kubeapi.Client
	close func()
}

// session reads the files and returns a session that the caller closes, once.
func (c *CA) session(requests ca.Token) (*session, error) {
	to, err := c.settings.access(requests)
	if err != nil {
		return nil, err
	}
	return c.connections.open(to)
}

var (
	// errDeleted ends the wait for an object that another client deleted, errSeen that for one
	// that is decided, and errEnded a watch without either.
	errDeleted = errors.New("deleted")
	errSeen    = errors.New("seen")
	errEnded   = errors.New("the server ended the watch")
)

// watch calls see with each later version of an object until that returns true. It returns
// [errDeleted] when the object is deleted, and another error when the server ends the watch or
// cannot watch: the caller then asks.
func (s *session) watch(ctx context.Context, collection string, from object, see func(object) bool) error {
	call := kubeapi.Call{Path: collection, Query: url.Values{"fieldSelector": {"metadata.name=" + from.Metadata.Name}}}
	err := s.Watch(ctx, call, from.Metadata.ResourceVersion, func(e kubeapi.Event) error {
		var now object
		if err := json.Unmarshal(e.Object, &now); err != nil {
			return errEnded
		}
		switch { // a server that does not know the selector sends all objects
		case now.Metadata.UID != from.Metadata.UID, e.Type == kubeapi.Bookmark:
		case e.Type == kubeapi.Deleted:
			return errDeleted
		case see(now):
			return errSeen
		}
		return nil
	})
	switch {
	case errors.Is(err, errSeen):
		return nil
	case err == nil:
		return errEnded
	}
	return err
}
