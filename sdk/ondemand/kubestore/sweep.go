package kubestore

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// sweepEvery is the time between two looks at the claims that processes have left. Those in use
// change every few seconds.
const sweepEvery = time.Hour

// sweep deletes Leases that have not changed between two looks, until ctx ends.
func (s *Store) sweep(ctx context.Context) {
	seen := map[string]string{} // resourceVersions by UID
	for {
		seen = s.sweepOnce(ctx, seen)
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

func (s *Store) sweepOnce(ctx context.Context, before map[string]string) (now map[string]string) {
	now = map[string]string{}
	claims := kubeapi.Call{Path: s.leases(), Query: url.Values{"labelSelector": {managedBy + "=" + manager + "," + kindLabel + "=" + kindClaim}}, MetadataOnly: true}
	_, err := s.client.List(ctx, claims, func(listed json.RawMessage) error {
		var o object
		if err := json.Unmarshal(listed, &o); err != nil {
			return err
		}
		m := o.Metadata
		now[m.UID] = m.ResourceVersion
		if before[m.UID] != m.ResourceVersion {
			return nil
		}
		err := s.client.Delete(ctx, s.leases()+"/"+m.Name, m.UID, m.ResourceVersion)
		if raced(err) || kubeapi.Answered(err, http.StatusForbidden) { // which concerns this one, as of an admission policy
			s.log.Debug("cannot delete a claim that a process has left", "lease", m.Name, "error", err)
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.log.Debug("cannot delete claims that processes have left", "error", err)
	}
	return now
}
