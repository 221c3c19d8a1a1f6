package share

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/internal/peers"
)

const (
	// version is the one that this program writes. Records without one are of the time before.
	version = 1
	// maxRecord bounds the record in bytes, maxMembers those in it.
	maxRecord  = 128 << 10
	maxMembers = 100
)

// record is what all members see of each other.
type record struct {
	Version int `json:"version"`
	// Generation is another one for each record that was made anew.
	Generation string `json:"generation"`
	// Settled: nobody uses anything of a record before this one. FloorsSettled: not even floors.
	Settled       bool              `json:"settled,omitempty"`
	FloorsSettled bool              `json:"floorsSettled,omitempty"`
	Members       map[string]member `json:"members"`
}

// member is what one wrote last, or what is left of it.
type member struct {
	Beat  uint64           `json:"beat"`
	Dead  bool             `json:"dead,omitempty"`
	Pools map[string]slice `json:"pools"`
}

// slice is a member's part of one quota, in ten-thousandths. A Floor is part of its Share.
type slice struct {
	Share int `json:"share"`
	Floor int `json:"floor,omitempty"`
	Want  int `json:"want,omitempty"`
}

func (m member) hasFloor() bool {
	for _, s := range m.Pools {
		if s.Floor > 0 {
			return true
		}
	}
	return false
}

// dead returns what is kept for a member of which there is no sign.
func (m member) dead() member {
	out := member{Beat: m.Beat, Dead: true, Pools: map[string]slice{}}
	for pool, s := range m.Pools {
		out.Pools[pool] = slice{Share: s.Floor, Floor: s.Floor}
	}
	return out
}

func (r record) clone() record {
	r.Members = maps.Clone(r.Members)
	if r.Members == nil {
		r.Members = map[string]member{}
	}
	return r
}

// parse reads a record; nothing is an empty one. The error wraps [peers.ErrNewer] if another program
// knows what it says; with any other error it is of no use to any.
func parse(text []byte) (r record, err error) {
	if len(text) == 0 {
		return record{}, nil
	}
	if err := peers.CheckVersion(text, version); err != nil {
		return record{}, fmt.Errorf("cannot use the record of shares: %w", err)
	}
	if len(text) > maxRecord {
		return record{}, fmt.Errorf("the record of shares has %d bytes, %d are allowed", len(text), maxRecord)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, fmt.Errorf("the record of shares is malformed: %w", err)
	}
	return r, r.check()
}

// check refuses what no member writes: a number below zero would be somebody's gain.
func (r record) check() error {
	if r.Generation == "" || len(r.Members) > maxMembers {
		return fmt.Errorf("the record of shares has generation %.64q and %d members: %d are allowed", r.Generation, len(r.Members), maxMembers)
	}
	for _, m := range r.Members {
		for _, s := range m.Pools {
			if min(s.Share, s.Floor, s.Want) < 0 || s.Floor > s.Share || max(s.Share, s.Want) > whole {
				return errors.New("share record contains an invalid share")
			}
		}
	}
	return nil
}

// fair returns one member's part of a total: what it wants, if the wants of all fit; otherwise at
// least as much as any member that has all it wants (max-min fairness). What no member wants is
// divided evenly, so that it can be used at once.
func fair(total, mine int, others []int) int {
	all := append(slices.Clone(others), mine)
	for i := range all {
		all[i] = max(all[i], least/len(all))
	}
	mine = all[len(all)-1]
	slices.Sort(all)
	left := max(0, total)
	for i, want := range all {
		level := left / (len(all) - i)
		if want > level { // and so do all that follow
			return min(mine, level)
		}
		left -= want
	}
	return mine + left/len(all)
}
