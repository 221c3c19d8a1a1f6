package workloads

import (
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/broker/pods"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Peers are the entries of workloads.peers. They decide who the users at the socket of SDS are, the
// callers of the Workload API, and the processes that brokers refer to.
type Peers []config.WorkloadPeer

// OfCaller returns the identity of the user at the other end of a stream of SDS. Its process may have
// ended meanwhile, so that entries with an executable or a cgroup do not count.
func (p Peers) OfCaller(caller secret.Caller) (spiffeID string, ok bool) {
	spiffeID, ok, _ = p.find(caller.UID, caller.GID, nil)
	return spiffeID, ok
}

// OfProcess returns the identity of a process. An error means that its
// attributes cannot be read.
func (p Peers) OfProcess(process workloadapi.Process) (spiffeID string, ok bool, err error) {
	uid, gid, err := process.User()
	if err != nil {
		return "", false, err
	}
	if spiffeID, ok, err = p.find(uid, gid, process); err != nil {
		return "", false, err
	}
	// What find has read is this user's only if the process did not become another's meanwhile.
	if u, g, err := process.User(); err != nil {
		return "", false, err
	} else if u != uid || g != gid {
		return "", false, errChanges
	}
	return spiffeID, ok, nil
}

var errChanges = errors.New("the process has become another user's while it was identified")

// find returns the identity of the first entry that fits; process may be nil. What cannot be read of
// a process is an error, as a later entry could be another workload's.
func (p Peers) find(uid, gid uint32, process workloadapi.Process) (spiffeID string, ok bool, err error) {
	for _, entry := range p {
		if entry.UID != uid || entry.GID != nil && *entry.GID != gid || entry.Held() && process == nil {
			continue
		}
		if ok, err := fits(entry, process); err != nil || ok {
			return entry.SPIFFEID, ok, err
		}
	}
	return "", false, nil
}

func fits(entry config.WorkloadPeer, process workloadapi.Process) (bool, error) {
	if entry.Executable != "" {
		if ok, err := process.Runs(entry.Executable); err != nil || !ok {
			return false, err
		}
	}
	if entry.Cgroup == "" {
		return true, nil
	}
	group, err := process.Cgroup()
	return err == nil && (group == entry.Cgroup || strings.HasPrefix(group, entry.Cgroup+"/")), err
}

// OfPod returns what makes the identities of the pods that brokers refer to, by the template for
// tokens.
func OfPod(template string) (identify func(pods.Pod) (spiffeID string, err error), err error) {
	t, err := identities.ParseTemplate(template)
	if err != nil {
		return nil, err
	}
	return func(p pods.Pod) (string, error) {
		return t.ID(config.PodClaims(p.Namespace, p.ServiceAccount, p.Name, p.UID, p.Node))
	}, nil
}
