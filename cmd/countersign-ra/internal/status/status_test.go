package status

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
	"github.com/countersign-dev/countersign/ra/istioca"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// ofProcess is a process with text everywhere.
func ofProcess(text string) daemon.Process {
	return daemon.Process{
		Machine:   overview.Machine{Host: text, PID: 7, Started: noon, Config: text},
		Addresses: map[string]string{text: text}, Configuration: overview.Configuration{At: noon, Refused: text}, Restart: []string{text},
	}
}

// ofAll is a report with each part, and with text everywhere.
func ofAll(text string) Report {
	return Report{
		Process: ofProcess(text), At: noon, NotReady: text, Needs: []Need{{Name: text, Error: text + " is away", Effect: text, Advice: text}}, Leader: lease.Status{Leading: true, Holder: text, Fault: text}, Unable: text, Audit: text,
		Authorities: []Authority{{
			Name: text, Waiting: 1, Rate: 2, MostRate: 5, HeldSeconds: 61, Held: text,
			Stopped: []Stopped{{Rule: text, Since: noon, Error: text, UpTo: "2h0m0s"}},
			Roots:   []Root{{Fingerprint: text, Phase: "announced", Since: noon, NotAfter: noon}, {Fingerprint: text, Phase: "trusted", Unplanned: true}},
		}},
		Istio: &Istio{
			Address: text, NotReady: text, Certificate: Certificate{Fingerprint: text, NotAfter: noon, Error: text, Failed: noon}, Calls: map[istioca.Result]uint64{istioca.Issued: 3},
			Outcomes: []Outcome{{Rule: text, Result: "issued", Count: 3}}, Dangerous: []string{text}, UnknownClusters: []UnknownReference{{text, text}},
			Renewals: &Renewals{Error: text}, Authorities: []Authority{{Name: text, Record: text, Stopped: []Stopped{{Rule: text, Error: text}}, Roots: []Root{{Fingerprint: text, Phase: "trusted"}}}},
		},
		Sharing:   []Sharing{{Engine: text, Members: 2, Error: text}},
		Providers: []overview.Provider{{Name: text, State: "refused", LastError: text}},
		Clusters: []Cluster{{
			Status:   fleet.Status{ID: text, State: fleet.Failed, Fault: text, Source: text, Server: text, Refused: []string{text}},
			NotReady: text, Dangerous: []string{text}, Bundles: []Bundle{{Signer: text, Authority: text, Object: text, Roots: []string{text}, Error: text}},
			Protection: &Protection{State: "unprotected", Why: text},
			Shut: []Shut{
				{Signer: text, Requests: text, Since: noon, NextTrial: noon, Error: text},
				{Signer: text, Requests: "y", Owners: []string{text}, Since: noon, NextTrial: noon, Error: text, Right: text},
			},
		}},
	}
}

func TestForeignTextIsEscapedOnThePage(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'</style>{{.}}`
	w := httptest.NewRecorder()
	Show(w, ofAll(hostile))
	page := w.Body.String()
	if strings.Count(page, "<script") != 1 || strings.Contains(page, "<img") || strings.Count(page, "</style>") != 1 || strings.Contains(page, "ZgotmplZ") || !strings.Contains(page, "</html>") {
		t.Errorf("it is:\n%s", page)
	}
	if policy := w.Header().Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "script-src 'sha256-") {
		t.Errorf("the policy is %q", policy)
	}
}

func TestEachProblemIsShownWithWhatToDo(t *testing.T) {
	t.Parallel()
	var told []string
	for _, problem := range ofAll("x").Problems() {
		told = append(told, problem.What)
		if problem.Do == "" || problem.Grade != good && problem.Grade != fair && problem.Grade != bad {
			t.Errorf("%+v", problem)
		}
	}
	all := strings.Join(told, "\n")
	for _, want := range []string{
		"The changed configuration was refused", "A restart is pending",
		"Nothing is signed by this replica", "A dependency is missing: x: x", "Rules cannot be served by their authorities", "Rule x is stopped at x for lifetimes up to 2h0m0s",
		"Certificates of x are held back", "A new root of x is not published everywhere", "Provider x is not ready: refused",
		"Duplicate cluster ID x", "Cluster x is failed", "Trust bundle x in x is out of date", "An authority is not asked, as x trusts it with its API", "Every user who may create PodCertificateRequests in x",
		"No certificate can be written into x of x in x", "No certificate can be written into y of x in x for x",
		"Istio's CA API is not served by this replica", "An authority is not asked for a mesh", "x names x, and no such cluster is known",
		"The quotas of x cannot be shared", "Machines cannot renew by their certificates", "The record of the roots of x cannot be used",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the page lacks %q:\n%s", want, all)
		}
	}
}

func TestPageShowsThatAllIsWell(t *testing.T) {
	t.Parallel()
	r := Report{
		At: noon, Leader: lease.Status{Leading: true}, Authorities: []Authority{{Name: "vault", Roots: []Root{{Fingerprint: "x", Phase: "trusted", NotAfter: noon}}}},
		Providers: []overview.Provider{{Name: "vault", State: "ready"}},
		Clusters:  []Cluster{{Status: fleet.Status{ID: "home", State: fleet.Synced}, Protection: &Protection{State: "protected"}}},
	}
	if got := r.Summary(); got != (mark{Words: "Signing. No problems.", Grade: good}) {
		t.Errorf("%+v: %+v", got, r.Problems())
	}
	r.Leader, r.Authorities = lease.Status{Holder: "another"}, nil
	if got := r.Summary(); got != (mark{Words: "Waiting: another leads. No problems.", Grade: good}) {
		t.Errorf("%+v: %+v", got, r.Problems())
	}
}

// A cluster that cannot be reached has a problem of its own.
func TestClusterThatLacksRootsIsShownOnce(t *testing.T) {
	for away, want := range map[bool]string{false: "No new root waits for cluster east any more", true: "Cluster east is left behind: no new root of vault waits for it"} {
		r := Report{Clusters: []Cluster{{Status: fleet.Status{ID: "east"}, Left: []string{"roots of vault in the mesh"}, Mesh: &Mesh{Roots: &MeshRoots{Authority: "vault", Away: away}}}}}
		if got := r.ofClusters(); len(got) != 1 || got[0].What != want {
			t.Errorf("away %t: %+v", away, got)
		}
	}
}

func TestProblemsOfAMeshAreShown(t *testing.T) {
	for want, m := range map[string]*Mesh{
		"Another client writes the ConfigMaps istio-ca-root-cert in home, too: in 3 namespaces, such as pilot-discovery": {Roots: &MeshRoots{Namespaces: 3, Lacking: 3, Disputed: 3, Rival: "pilot-discovery", Error: "x"}},
		"ConfigMaps istio-ca-root-cert in home are out of date: 1 of 3":                                                  {Roots: &MeshRoots{Namespaces: 3, Lacking: 1, Error: "1 of 3"}},
		"Namespaces of home are left behind: no new root of vault waits for them: shop: 1 of 3":                          {Roots: &MeshRoots{Authority: "vault", Namespaces: 3, Lacking: 1, Disputed: 1, Left: []string{"shop"}, Error: "1 of 3"}},
		"Cluster home is left behind: no new root of vault waits for it: away":                                           {Roots: &MeshRoots{Authority: "vault", Away: true, Error: "away"}},
		"Secret mesh/istiod-tls in home is not as it should be: denied":                                                  {Istiod: &Istiod{Namespace: "mesh", Error: "denied"}},
		"": {Roots: &MeshRoots{Namespaces: 3}, Istiod: &Istiod{Namespace: "mesh"}},
	} {
		said := ""
		for _, problem := range m.problems("home") {
			said += fmt.Sprintf("%s: %s", problem.What, problem.Detail)
			if problem.Do == "" {
				t.Errorf("%s: nothing to do", problem.What)
			}
		}
		if said != want {
			t.Errorf("got %q, want %q", said, want)
		}
	}
	var none *Mesh
	if none.problems("home") != nil {
		t.Error("no mesh has a problem")
	}
}

func TestStatusShowsTheMesh(t *testing.T) {
	r := Report{Clusters: []Cluster{{Mesh: &Mesh{
		Roots: &MeshRoots{Authority: "vault", Namespaces: 7, Lacking: 2, Error: "two lack it"}, Istiod: &Istiod{Authority: "vault", Namespace: "mesh"},
	}}, {}}}
	r.Clusters[0].ID = "home"
	var out strings.Builder
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MESH OBJECT", "5 of 7 namespaces", "two lack it", "mesh/istiod-tls"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
