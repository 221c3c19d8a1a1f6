//go:build e2e && linux

package program

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// As docs/versioning.md promises, neighbouring releases read the configuration and records
// of each other, in both directions (BEFORE names a commit in place of the release before).
func TestRealReleasesReplaceEachOther(t *testing.T) {
	t.Parallel()
	clone := filepath.Join(proctest.Folder(t), "clone")
	build := exec.Command(programs.File(t, "scripts/build-of"), "before", "v0.1.0", clone, "./cmd/countersign-ra")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	before, now := filepath.Join(clone, "built", "countersign-ra"), programs.Path(t, "countersign-ra")
	t.Run("roots", func(t *testing.T) { replaceEachOther(t, before, now) })
	t.Run("chains, shares and requests", func(t *testing.T) { serveBesideEachOther(t, before, now) })
}

// release starts a release on the files of a folder.
func release(t *testing.T, program, dir string) *replica {
	t.Helper()
	cmd := exec.Command(program, "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = environment(t)
	return launch(t, dir, cmd)
}

// replaceEachOther has each release issue to a pod after the other.
func replaceEachOther(t *testing.T, before, now string) {
	t.Parallel()
	api := newAPIServer(t)
	dir := files(t, api, usual)
	var bundle any
	for i, program := range []string{before, now, before} {
		pod := "web-" + string(rune('0'+i))
		api.addPod(t, "shop", pod)
		r := release(t, program, dir)
		r.until(t, "the pod has a certificate", func() bool { return api.chain(t, "shop", pod) != nil })
		r.until(t, "the trust bundle is written", func() bool { return api.get("clustertrustbundles", "", bundleName) != nil })
		r.measures(t, `countersign_ra_root_record_usable{authority="file",engine="kubernetes"} 1`, `countersign_ra_roots{authority="file",engine="kubernetes",phase="trusted"} 1`)
		r.Stop(syscall.SIGTERM)
		if strings.Contains(r.Log.String(), "record") {
			t.Errorf("release %d logged about its records:\n%s", i, r.Log)
		}
		published := api.get("clustertrustbundles", "", bundleName).At("spec", "trustBundle")
		if i > 0 && published != bundle {
			t.Errorf("release %d published other roots", i)
		}
		bundle = published
	}
}

// forUpgrade serves a mesh, whose machines renew by their certificates, and users' requests.
var forUpgrade = strings.NewReplacer("remotes: {folder: DIR/remotes}\n", "", "rules:\n", `signers:
- name: example.com/mesh
  certificate_requests: {enabled: true, approve: true}
rules:
- name: users
  match: {kinds: [user]}
  names: {spiffe_id: "spiffe://cluster.local/user/{user}"}
`).Replace(forRenewals)

// serveBesideEachOther rolls from one release to the other and back, as a Deployment does: the new
// replica is ready before the old one ends. A machine renews at each in turn, and a user's request, whose
// certificate the leader cannot write, is left to the next.
func serveBesideEachOther(t *testing.T, before, now string) {
	t.Parallel()
	home := newAPIServer(t)
	home.addToken("vm-token", bound{"vm", "db", ""}, "")
	ca := filepath.Join(proctest.Folder(t), "ca")
	next := func(program string) *replica {
		dir := files(t, home, strings.ReplaceAll(forUpgrade, "DIR/ca", ca))
		r := release(t, program, dir)
		r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
		r.measures(t, `countersign_ra_quota_shared{engine="istio"} 1`)
		return r
	}
	r := next(before)
	root := []byte(read(t, filepath.Join(ca, "ca-cert.pem")))
	pair, _ := as(t, r.dial(t, root), "vm-token", "").pair()
	first := pair
	for _, program := range []string{now, before} {
		user := "user-of-" + filepath.Base(filepath.Dir(program))
		home.rude.Store(true)
		home.Put(signingRequest(t, user, "spiffe://cluster.local/user/"+user))
		r.until(t, "the request waits for the API server", func() bool { return strings.Contains(read(t, filepath.Join(r.dir, "audit.log")), user) })
		following := next(program)
		following.measures(t, `countersign_ra_leader 0`)
		r.Stop(syscall.SIGTERM)
		home.rude.Store(false)
		r = following
		r.until(t, "the user has a certificate", func() bool {
			return home.get("certificatesigningrequests", "", user).At("status", "certificate") != nil
		})
		pair, _ = r.withCertificate(t, root, pair).pair()
		if strings.Contains(r.Log.String(), "level=ERROR") || strings.Contains(r.Log.String(), "newer version") {
			t.Errorf("%s logged:\n%s", program, r.Log)
		}
	}
	// The releases share one record of the machine: an older certificate is a copy.
	r.withCertificate(t, root, first).refused(nil, codes.PermissionDenied)
	r.withCertificate(t, root, pair).refused(nil, codes.PermissionDenied)
}
