package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	ownFolder = "/opt/providers"
	ownLock   = "/etc/own.lock"
)

// released returns the package of the agent that a commit of this clone makes, as a release of that
// version (scripts/build-of).
func released(t *testing.T, commit, version string) (deb string) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	output(t, exec.Command("../../scripts/build-of", commit, version, clone, "./cmd/countersign", "./providers/file/cmd/countersign-provider-file"))
	pack := exec.Command(filepath.Join(clone, "scripts/release"), "packages")
	pack.Env = append(os.Environ(), "GOWORK=", "VERSION="+version, "STAGE="+filepath.Join(clone, "built"))
	output(t, pack)
	return one(t, filepath.Join(clone, "dist"), "countersign_*.deb")
}

// What docs/versioning.md promises of neighbouring releases: each reads the configuration, state and lock
// file of the other, in both directions, and runs the other's providers.
func TestReleasesReplaceEachOther(t *testing.T) {
	r := newRoot(t)
	first, second := released(t, "before", "v0.1.0"), released(t, "HEAD", "v0.2.0")
	r.becomes(t, first, "0.1.0")
	uid, gid := r.user(t, "countersign")
	check(t, os.Chown(r.path("run/countersign"), uid, gid))
	config := r.read(t, "etc/countersign/countersign.yaml") + "# mine\n"
	r.write(t, "etc/countersign/countersign.yaml", config)
	r.serves(t, "serving new certificate")
	r.keepProvider(t)

	r.becomes(t, second, "0.2.0")
	r.serves(t, "serving certificate restored from state")
	r.runsKeptProvider(t)
	r.keepProvider(t)

	r.becomes(t, first, "0.1.0")
	r.serves(t, "serving (new certificate|certificate restored from state)")
	r.runsKeptProvider(t)
	if r.read(t, "etc/countersign/countersign.yaml") != config {
		t.Error("the configuration was replaced")
	}
}

// becomes installs a release over another.
func (r root) becomes(t *testing.T, deb, version string) {
	t.Helper()
	r.dpkg(t, "--force-confold", "--install", deb) // an operator who is asked keeps the file, too
	if said := output(t, r.command(t, "countersign", "/usr/bin/countersign", "version")); !strings.HasPrefix(said, "countersign "+version+" ") {
		t.Fatalf("the agent of %s is %s", version, said)
	}
	output(t, r.command(t, "countersign", "/usr/bin/countersign", "config", "validate", "--config", "/etc/countersign/countersign.yaml"))
}

func (r root) serves(t *testing.T, logged string) {
	t.Helper()
	a := r.startAgent(t)
	a.await(t, logged)
	a.stop(t)
}

// keepProvider copies the release's provider aside, and locks it.
func (r root) keepProvider(t *testing.T) {
	t.Helper()
	check(t, os.MkdirAll(r.path(ownFolder), 0o755))
	r.copy(t, r.path("usr/"+provider), filepath.Join(ownFolder, filepath.Base(provider)))
	output(t, r.command(t, "root", "/usr/bin/countersign", "provider", "lock", "--provider-dir", ownFolder, "--lock", ownLock, "file"))
}

// runsKeptProvider starts an agent that runs the other release's provider, by its lock file.
func (r root) runsKeptProvider(t *testing.T) {
	t.Helper()
	if sumOf(t, r.path(ownFolder+"/"+filepath.Base(provider))) == sumOf(t, r.path("usr/"+provider)) {
		t.Error("both releases have the same provider")
	}
	output(t, r.command(t, "root", "/usr/bin/countersign", "provider", "verify", "--provider-dir", ownFolder, "--lock", ownLock))
	installed := r.read(t, "etc/countersign/countersign.yaml")
	defer r.write(t, "etc/countersign/countersign.yaml", installed)
	r.write(t, "etc/countersign/countersign.yaml", installed+"provider_dirs: ["+ownFolder+"]\nlock: "+ownLock+"\n")
	r.serves(t, "provider=file state=ready")
}
