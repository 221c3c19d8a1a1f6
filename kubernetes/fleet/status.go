package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// State is the state of a cluster.
type State string

// States lists all states.
var States = [...]State{Connecting, Synced, Away, Failed}

// The states of a cluster. A failed cluster may still serve through an earlier kubeconfig: see
// [Status].Serving.
const (
	Connecting State = "connecting" // not synced, or its newer kubeconfig is not
	Synced     State = "synced"
	Away       State = "away"   // synced, but its API server does not answer us now
	Failed     State = "failed" // no retry until the kubeconfig changes, or for as long as Fault says
)

// Status is the state of one cluster for operators.
type Status struct {
	ID    string `json:"id"`
	Local bool   `json:"local,omitempty"`
	State State  `json:"state"`
	// Serving means that the cluster is synced, possibly through an earlier kubeconfig.
	Serving bool `json:"serving"`
	// Source of the kubeconfig: "secret istio-system/remotes" or "file /etc/remotes/east.yaml".
	Source string `json:"source,omitempty"`
	// Since is when that kubeconfig arrived, Away since when its API server is away.
	Since time.Time `json:"since,omitzero"`
	Away  time.Time `json:"away,omitzero"`
	// Server is the API server of the serving kubeconfig.
	Server string `json:"server,omitempty"`
	// Fault says why the cluster is not followed, or its kubeconfig not accepted.
	Fault string `json:"fault,omitempty"`
	// Refused lists other sources that claim the id.
	Refused []string `json:"refused,omitempty"`
	// Secrets and ConfigMaps count the objects held.
	Secrets    int `json:"secrets"`
	ConfigMaps int `json:"config_maps"`

	serving, next *Cluster
}

// show updates the status of every cluster after each pass.
func (f *Fleet) show(local []claim) {
	for _, m := range f.members {
		f.showMember(m)
	}
	refused := make([]string, len(local))
	for i, c := range local {
		refused[i] = c.source
	}
	f.mu.Lock()
	f.status[f.cfg.LocalID] = Status{Refused: refused}
	first := f.known.IsZero()
	if first {
		f.known = time.Now()
	}
	f.mu.Unlock()
	if first {
		f.cfg.Log.Info("kubeconfigs of remote clusters loaded", "clusters", len(f.members))
	}
}

func (f *Fleet) showMember(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[m.id] != m {
		delete(f.status, m.id)
		return
	}
	f.status[m.id] = Status{
		ID: m.id, Source: m.source, Since: m.since, Fault: m.fault, Refused: m.refused, serving: m.serving, next: m.next,
	}
}

// Status returns all clusters, the local one first, then by id.
func (f *Fleet) Status() []Status {
	f.mu.RLock()
	known := maps.Clone(f.status)
	folder := f.folder
	f.mu.RUnlock()
	local := known[f.cfg.LocalID]
	local.ID, local.Local, local.serving = f.cfg.LocalID, true, f.local
	if local.Fault = f.health.fault(); local.Fault == "" && folder != "" {
		local.Fault = "kubeconfig folder: " + folder
	}
	known[f.cfg.LocalID] = local
	all := slices.SortedFunc(maps.Values(known), func(a, b Status) int {
		if a.Local != b.Local {
			return map[bool]int{true: -1, false: 1}[a.Local]
		}
		return cmp.Compare(a.ID, b.ID)
	})
	for i := range all {
		all[i].complete()
	}
	return all
}

// complete adds the values that change on their own.
func (s *Status) complete() {
	if c := s.serving; c != nil {
		s.Serving, s.Server = c.Synced(), c.conn.server()
		if !c.clientOnly() {
			s.Secrets, s.ConfigMaps = len(c.secrets.GetStore().ListKeys()), len(c.configs.GetStore().ListKeys())
		}
	}
	s.Away = s.away()
	s.State = s.state()
	for _, c := range []*Cluster{s.next, s.serving} {
		if c != nil && s.Fault == "" {
			s.Fault = c.conn.health.fault()
		}
	}
}

// away returns since when the API server of a synced cluster does not answer; zero if it does.
func (s *Status) away() time.Time {
	if s.serving == nil || !s.serving.Synced() {
		return time.Time{}
	}
	return s.serving.conn.health.since()
}

func (s *Status) state() State {
	switch {
	case s.Fault != "" && !s.Local:
		return Failed
	case !s.Away.IsZero():
		return Away
	case s.next == nil && s.serving != nil && s.serving.Synced():
		return Synced
	}
	return Connecting
}
