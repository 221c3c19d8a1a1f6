package meshroots

import (
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// notes are what is logged once a minute at most, whatever the number of namespaces.
type notes struct {
	repairs  int    // since the last line
	where    string // one of them
	lacking  bool   // namespaces lacked roots a minute ago
	disputed int    // places in which another client keeps writing
	rival    string // who, where that is known
	others   bool   // namespaces had other roots a minute ago
}

// leaveBehind finds namespaces that others have kept from having the roots for too long: no root
// waits for them from now on. Once the roots are an hour old, that is soon: an owner who breaks and mends
// his ConfigMap by turns, or several who take turns, would delay a root without end. If most namespaces lack
// the roots, another program writes them all, and each keeps its hour.
func (k *Keeper) leaveBehind(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	patience := exit
	if k.want != nil && now.Sub(k.want.since) >= exit && 2*k.right >= len(k.places) {
		patience = every
	}
	for namespace, p := range k.places {
		if p.left || !p.kept(k.want) || now.Sub(p.wrong) < patience {
			continue
		}
		k.count(p, -1)
		p.left = true
		k.count(p, 1)
		k.cfg.Log.Error("no new root waits for a namespace any more, as its ConfigMap cannot be kept: its pods will refuse peers with certificates below a new root",
			"config_map", Name, "namespace", namespace, "error", text.Clean(k.why(p).Error()))
	}
}

// why returns why a namespace is left behind.
func (k *Keeper) why(p *place) error {
	if p.err != nil {
		return p.err
	}
	return errDisputed
}

// dispute records that another client keeps writing in a namespace, and logs it once. The lock is held.
func (k *Keeper) dispute(namespace string, p *place, rival string) {
	if p.disputed {
		return
	}
	p.disputed = true
	k.notes.disputed++
	if rival != "" {
		k.notes.rival = rival
	}
	if k.notes.disputed == 1 {
		k.cfg.Log.Error("another client keeps writing or deleting the roots of the mesh: turn off one of the two writers, such as istiod's CA (ENABLE_CA_SERVER=false)",
			"config_map", Name, "namespace", namespace, "writer", rival)
	}
}

// settle ends what was disputed about a place. The lock is held.
func (k *Keeper) settle(p *place) {
	if p.pace.Forget(); p.has != nil && p.has == k.want {
		p.wrong, p.left = time.Time{}, false
	}
	if !p.disputed {
		return
	}
	p.disputed = false
	if k.notes.disputed--; k.notes.disputed == 0 {
		k.notes.rival = ""
		k.cfg.Log.Info("no other client writes the roots of the mesh any more")
	}
}

// complain logs faults that last for more than a minute, and repairs.
func (k *Keeper) complain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.notes.repairs; n > 0 {
		k.cfg.Log.Warn("restored roots of the mesh that another client changed or deleted", "times", n, "namespace", k.notes.where)
		k.notes.repairs = 0
	}
	err := k.missing(false)
	if err != nil && k.notes.lacking {
		k.cfg.Log.Warn("the roots of the mesh are not in all namespaces", "authority", k.cfg.Authority, "error", text.Clean(err.Error()))
	}
	k.notes.lacking = err != nil
}

// repair records that a change by another client was undone; before is what that client left. The lock is held.
func (k *Keeper) repair(namespace string, p *place, before *seen, now time.Time) {
	k.notes.repairs++
	k.notes.where = namespace
	p.pace.Repaired(pace, now)
	p.blame(now)
	if !p.pace.Disputed() {
		return
	}
	rival := ""
	if before != nil {
		rival = before.rival
	}
	k.dispute(namespace, p, rival)
}
