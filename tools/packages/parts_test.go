package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// wholeStage is a stage with files of every part. They are copies of a small program.
func wholeStage(t *testing.T) string {
	t.Helper()
	stage := stageOf(t)
	program, err := os.ReadFile(filepath.Join(stage, provider))
	check(t, err)
	for _, name := range []string{"bin/countersign-ra", "bin/countersign-discovery", "lib/countersign/providers/countersign-provider-aws"} {
		check(t, os.WriteFile(filepath.Join(stage, name), program, 0o755))
	}
	for _, name := range []string{"countersign-ra", "countersign-discovery"} {
		for from, to := range map[string]string{".service": "lib/systemd/system/" + name + ".service", ".sysusers": "lib/sysusers.d/" + name + ".conf"} {
			text, err := os.ReadFile("../../deploy/systemd/" + name + from)
			check(t, err)
			check(t, os.WriteFile(filepath.Join(stage, to), text, 0o644))
		}
	}
	check(t, os.WriteFile(filepath.Join(stage, "share/man/man1/countersign-ra.1.gz"), nil, 0o644))
	for _, folder := range []string{"", "github.com/spf13/cobra", "google.golang.org/grpc"} {
		folder = filepath.Join(stage, licences, folder)
		check(t, os.MkdirAll(folder, 0o755))
		check(t, os.WriteFile(filepath.Join(folder, "LICENSE"), nil, 0o644))
	}
	lockAll(t, stage)
	return stage
}

// lockAll adds pins of what is in the stage to its lock file.
func lockAll(t *testing.T, stage string) {
	t.Helper()
	path := filepath.Join(stage, lockFile)
	text, err := os.ReadFile(path)
	check(t, err)
	var lock struct {
		Format    int              `json:"format"`
		Providers []map[string]any `json:"providers"`
		Programs  []map[string]any `json:"programs"`
	}
	check(t, json.Unmarshal(text, &lock))
	aws := map[string]any{"name": "aws", "file": "countersign-provider-aws"}
	for _, key := range []string{"version", "protocol", "os", "arch", "sha256"} {
		aws[key] = lock.Providers[0][key]
	}
	lock.Providers = append(lock.Providers, aws)
	for _, name := range []string{"countersign-discovery", "countersign-ra"} {
		lock.Programs = append(lock.Programs, map[string]any{"name": name, "os": "linux", "arch": runtime.GOARCH, "sha256": sumOf(t, filepath.Join(stage, "bin", name))})
	}
	text, err = json.Marshal(lock)
	check(t, err)
	check(t, os.WriteFile(path, text, 0o644))
}

// debs returns the packages in a folder by their names.
func debs(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	check(t, err)
	for _, path := range paths {
		name, _, _ := strings.Cut(filepath.Base(path), "_")
		found[name] = path
	}
	return found
}

// Each file is in one package, and each package pins what it holds and nothing else. Its lock file comes
// behind its providers, as dpkg renames in that order.
func TestEachPackagePinsWhatItHolds(t *testing.T) {
	stage := wholeStage(t)
	files := map[string]string{}
	for name, deb := range debs(t, packed(t, stage, "v0.1.0", "deb")) {
		listed := regexp.MustCompile(`(?m)^-.* \./(\S+)$`).FindAllStringSubmatch(output(t, exec.Command("dpkg-deb", "--contents", deb)), -1)
		var paths []string
		for _, line := range listed {
			if other := files[line[1]]; other != "" {
				t.Errorf("%s is in %s and %s", line[1], other, name)
			}
			files[line[1]] = name
			paths = append(paths, line[1])
		}
		lock := slices.IndexFunc(paths, func(path string) bool { return strings.HasSuffix(path, ".lock") })
		if behind := slices.IndexFunc(paths[max(lock, 0):], func(path string) bool { return strings.Contains(path, providerFolder+providerPrefix) }); lock < 0 || behind >= 0 {
			t.Errorf("%s has its lock file at %d of %s", name, lock, paths)
		}
	}
	for path, name := range map[string]string{
		"usr/" + provider: "countersign", "usr/share/man/man1/countersign-agent.1.gz": "countersign", "usr/share/doc/countersign/docs/ra.md": "countersign",
		"usr/lib/countersign/providers/countersign-provider-aws": "countersign-providers-cloud", "usr/bin/countersign-ra": "countersign-ra",
		"usr/share/man/man1/countersign-ra.1.gz": "countersign-ra", "usr/bin/countersign-discovery": "countersign-discovery",
		"usr/lib/systemd/system/countersign-ra.service": "countersign-ra", "usr/lib/sysusers.d/countersign-discovery.conf": "countersign-discovery",
		"usr/share/doc/countersign-ra/copyright": "countersign-ra", "usr/share/licenses/countersign/github.com/spf13/cobra/LICENSE": "countersign",
		"usr/share/licenses/countersign-ra/google.golang.org/grpc/LICENSE": "countersign-ra", "usr/share/licenses/countersign-ra/LICENSE": "countersign-ra",
		"usr/share/licenses/countersign-ra/github.com/spf13/cobra/LICENSE": "", // which it does not link
	} {
		if files[path] != name {
			t.Errorf("%s is in %q", path, files[path])
		}
	}
}

// validates reports whether the agent in the root accepts a provider, by what pins it.
func (r root) validates(t *testing.T, name string) bool {
	t.Helper()
	config := "/etc/" + name + ".yaml"
	r.write(t, config, "providers: [{name: "+name+"}]\nsecrets: [{name: default, dns_names: [a.example.org]}]\nsocket: {path: /run/countersign/socket}\n")
	said, err := r.command(t, "countersign", "/usr/bin/countersign", "config", "explain", "--config", config).CombinedOutput()
	t.Logf("%v: %s", err, said)
	return strings.Contains(string(said), "providers."+name+".sha256 ") && strings.Contains(string(said), "/usr/lib/countersign/providers/countersign")
}

// Builds before the first release had all in the agent's package. A package that takes over files of it
// goes in only together with an agent's package that has them no more.
func TestOnePackageBecomesSeveral(t *testing.T) {
	r, stage, whole := newRoot(t), wholeStage(t), parts
	parts = parts[:1]
	first := packed(t, stage, "v0.0.9", "deb")
	parts = whole
	r.dpkg(t, "--install", one(t, first, "*.deb"))
	second := debs(t, packed(t, stage, "v0.1.0", "deb"))
	if said, err := exec.Command("dpkg", "--root="+string(r), "--force-not-root", "--install", second["countersign-ra"]).CombinedOutput(); err == nil {
		t.Errorf("it took files of another version: %s", said)
	}
	r.dpkg(t, "--auto-deconfigure", "--install", second["countersign-ra"], second[cloud.name], second["countersign"])
	if r.exists("usr/bin/countersign-discovery") {
		t.Error("the discovery service has no package")
	}
	for _, name := range []string{"file", "aws"} {
		if !r.validates(t, name) {
			t.Errorf("%s is not pinned", name)
		}
	}
	output(t, r.command(t, "root", "/usr/bin/countersign", "provider", "verify"))

	r.dpkg(t, "--purge", cloud.name)
	if r.validates(t, "aws") || !r.validates(t, "file") {
		t.Error("removed too little, or too much")
	}
	r.dpkg(t, "--purge", "countersign")
	if !r.exists("usr/bin/countersign-ra") || r.exists("usr/"+provider) {
		t.Error("the agent's package took another's files")
	}
	r.dpkg(t, "--purge", "countersign-ra")
	if r.exists("usr/lib/countersign") || r.exists("usr/share/licenses") {
		t.Error("purged too little")
	}
}

// An upgrade must not stop what cannot start again. Each package restarts the unit of its program.
func TestServiceThatTheNewVersionRefusesRunsOn(t *testing.T) {
	r := newRoot(t)
	r.standInSystemd(t)
	stage := wholeStage(t)
	before := debs(t, packed(t, stage, "v0.1.0", "deb"))
	r.dpkg(t, "--install", before["countersign"], before["countersign-ra"], before["countersign-discovery"])
	r.asked(t, "daemon-reload", "daemon-reload", "daemon-reload")
	key := r.read(t, "etc/countersign/state.key")
	mine := strings.Replace(r.read(t, "etc/countersign/countersign.yaml"), "- name: file\n", "- name: file\n  sha256: "+sumOf(t, r.path("usr/"+provider))+"\n", 1)
	r.write(t, "etc/mine.yaml", mine)
	if said := output(t, r.command(t, "countersign", "/usr/bin/countersign", "config", "validate", "--config", "/etc/mine.yaml")); !strings.Contains(said, "warning: providers.file.sha256 pins provider file") {
		t.Errorf("the pin is not warned of: %s", said)
	}
	r.enable(t, "countersign", "/usr/bin/countersign agent --config=/etc/mine.yaml --log-level debug")
	t.Setenv("COUNTERSIGN_LOCK", "/of/another")
	secondBuild(t, stage)
	after := debs(t, packed(t, stage, "v0.2.0", "deb"))
	said := r.upgrade(t, after["countersign"])
	r.asked(t, "daemon-reload", isEnabled, startedBy)
	for name, takes := range map[string]string{"discovery": "exit 2", "ra": "[ \"$*\" = \"config validate --config /etc/ra.yaml\" ] && [ -z \"$COUNTERSIGN_LOCK\" ]"} {
		r.enable(t, "countersign-"+name, "/usr/bin/countersign-"+name+" serve --config /etc/"+name+".yaml")
		r.dpkg(t, "--unpack", after["countersign-"+name])
		r.write(t, "usr/bin/countersign-"+name, "#!/bin/sh\n"+takes+"\n")
	}
	said += output(t, exec.Command("sh", "-c", `exec dpkg --root="$0" --force-not-root --configure countersign-discovery countersign-ra 2>&1`, string(r)))
	r.asked(t, "daemon-reload", "is-enabled --quiet countersign-discovery.service", "show --property=ExecStart --value countersign-discovery.service",
		"daemon-reload", "is-enabled --quiet countersign-ra.service", "show --property=ExecStart --value countersign-ra.service", "restart countersign-ra.service")
	for _, want := range []string{"countersign.service was not restarted", "refuses /etc/mine.yaml", "countersign-discovery.service was not restarted", "SHA-256"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing: %s", want, said)
		}
	}
	if r.read(t, "etc/countersign/state.key") != key || len(key) < 32 {
		t.Error("the key of the state was replaced")
	}
}
