package workloads

import (
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/sdk/broker/pods"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// process is one whose attributes cannot be read if they are empty.
type process struct {
	uid, gid        uint32
	program, cgroup string
}

var errHidden = errors.New("hidden")

func (p process) PID() int32 { return 1 }

func (p process) User() (uint32, uint32, error) {
	if p.uid == 0 {
		return 0, 0, errHidden
	}
	return p.uid, p.gid, nil
}

func (p process) Runs(path string) (bool, error) {
	if p.program == "" {
		return false, errHidden
	}
	return path == p.program, nil
}

func (p process) Cgroup() (string, error) {
	if p.cgroup == "" {
		return "", errHidden
	}
	return p.cgroup, nil
}

func TestFirstEntryThatFitsDecides(t *testing.T) {
	peers := Peers{
		{UID: 1, Executable: "/web", Cgroup: "/slice/web", SPIFFEID: "web"},
		{UID: 1, Cgroup: "/slice/db", SPIFFEID: "db"},
		{UID: 1, GID: new(uint32(7)), SPIFFEID: "group"},
		{UID: 1, SPIFFEID: "user"},
		{UID: 2, Executable: "/web", SPIFFEID: "other"},
	}
	for p, want := range map[process]string{
		{1, 1, "/web", "/slice/web"}: "web", {1, 1, "/web", "/slice/web/inner"}: "web", {1, 1, "/web", "/slice/webs"}: "user", {1, 1, "/bash", "/slice/web"}: "user",
		{1, 1, "/bash", "/slice/db"}: "db", {1, 7, "/bash", "/"}: "group", {2, 1, "/web", "/"}: "other", {2, 1, "/bash", "/"}: "", {3, 1, "/web", "/slice/web"}: "",
	} {
		if id, ok, err := peers.OfProcess(p); id != want && ok || ok != (want != "") || err != nil {
			t.Errorf("%+v is %q, %t, %v; want %q", p, id, ok, err, want)
		}
	}
	// An unreadable attribute decides neither for the entry nor for a later one.
	for _, p := range []process{{0, 0, "/web", "/slice/web"}, {1, 1, "", "/slice/web"}, {1, 1, "/web", ""}, {1, 1, "/bash", ""}} {
		if id, ok, err := peers.OfProcess(p); ok || !errors.Is(err, errHidden) {
			t.Errorf("%+v is %q, %t, %v", p, id, ok, err)
		}
	}
}

// running is a process that becomes another user's when its program is looked at, as one that drops
// privileges and runs another program does.
type running struct{ *process }

func (r running) Runs(path string) (bool, error) {
	same, err := r.process.Runs(path)
	r.uid = 9
	return same, err
}

func TestProgramOfAnotherUserIsNotTheFirstUsers(t *testing.T) {
	peers := Peers{{UID: 1, Executable: "/web", SPIFFEID: "web"}, {UID: 9, SPIFFEID: "nobody"}}
	if id, ok, err := peers.OfProcess(running{&process{1, 1, "/web", "/"}}); ok || err == nil {
		t.Errorf("it is %q, %t, %v", id, ok, err)
	}
}

// The process of a caller may have ended, and its PID be another's.
func TestEntriesOfHeldProcessesAreNotForCallers(t *testing.T) {
	peers := Peers{{UID: 1, Executable: "/web", SPIFFEID: "web"}, {UID: 1, GID: new(uint32(7)), SPIFFEID: "group"}, {UID: 2, Cgroup: "/a", SPIFFEID: "other"}}
	for caller, want := range map[secret.Caller]string{{UID: 1, GID: 7, PID: 1}: "group", {UID: 1, GID: 8, PID: 1}: "", {UID: 2, PID: 1}: ""} {
		if id, ok := peers.OfCaller(caller); id != want || ok != (want != "") {
			t.Errorf("%+v is %q; want %q", caller, id, want)
		}
	}
}

func TestPodHasIdentityByTemplate(t *testing.T) {
	pod := pods.Pod{Namespace: "shop", Name: "web-1", UID: "u-1", ServiceAccount: "web", Node: "here"}
	for template, want := range map[string]string{
		"spiffe://a/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}": "spiffe://a/ns/shop/sa/web",
		"spiffe://a/{kubernetes.io/pod/name}/{kubernetes.io/pod/uid}":                    "spiffe://a/web-1/u-1",
		"spiffe://a/{kubernetes.io/node/name}/{sub:3}":                                   "spiffe://a/here/web",
		"spiffe://a/{email}": "",
	} {
		identify, err := OfPod(template)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := identify(pod); id != want && err == nil || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", template, id, err)
		}
	}
	if _, err := OfPod("spiffe://a/b"); err == nil {
		t.Error("a template without a claim is taken")
	}
}
