//go:build check

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what these tests read of a file in .github/workflows.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		RunsOn    string `json:"runs-on"`
		Uses      string
		With      map[string]any
		Container struct{ Image string }
		Steps     []struct {
			Name, Uses, Run string
			Timeout         int `json:"timeout-minutes"`
		}
		Timeout any `json:"timeout-minutes"`
	}
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]workflow{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

// bootstrap lists the only commands of a step besides targets of the Makefile and scripts of the tree:
// they fetch the tree, and Debian's packages, whose signatures apt verifies.
var bootstrap = []string{"apt-get -q update", "apt-get -qy install --no-install-recommends ", "git init --quiet ", "git fetch --quiet --no-tags ", "git checkout --quiet FETCH_HEAD", "echo /usr/local/go/bin >>"}

var (
	makeCall   = regexp.MustCompile(`^make (\S+)`)
	scriptCall = regexp.MustCompile(`^/countersign/(scripts/\S+)`)
	target     = regexp.MustCompile(`(?m)^([a-z]+):.*## `)
	pinned     = regexp.MustCompile(`@[0-9a-f]{40}$`)
	versioned  = regexp.MustCompile(`^(ubuntu-\d\d\.\d\d|)$`)
)

// So each step can be run in a clone, on a Debian of that release.
func TestWorkflowStepsAreTargetsAndScripts(t *testing.T) {
	var targets []string
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	for file, w := range workflows(t) {
		for _, job := range w.Jobs {
			if called, ok := job.With["target"].(string); ok && !slices.Contains(targets, called) {
				t.Errorf("%s: the Makefile lacks the target %q", file, called)
			}
			for _, step := range job.Steps {
				for line := range strings.Lines(step.Run) {
					for command := range strings.SplitSeq(strings.TrimSpace(line), " && ") {
						if why := notOurs(command, targets); why != "" {
							t.Errorf("%s, step %q: %q %s", file, step.Name, command, why)
						}
					}
				}
			}
		}
	}
}

// notOurs returns what is wrong with a command of a step; "" for nothing.
func notOurs(command string, targets []string) string {
	if m := makeCall.FindStringSubmatch(command); m != nil {
		if m[1] != `"$TARGET"` && !slices.Contains(targets, m[1]) {
			return "names a target that the Makefile lacks"
		}
		return ""
	}
	if m := scriptCall.FindStringSubmatch(command); m != nil {
		if info, err := os.Stat(filepath.Join(root, m[1])); err != nil || info.Mode()&0o100 == 0 {
			return "names a script that the tree lacks"
		}
		return ""
	}
	if command == "cd /countersign" || slices.ContainsFunc(bootstrap, func(begin string) bool { return strings.HasPrefix(command, begin) }) {
		return ""
	}
	return "is neither a target of the Makefile nor a script: move it into one"
}

// Actions are pinned by commit, machines and images by release; scripts/install-go pins Go by hash.
func TestWorkflowsArePinned(t *testing.T) {
	for file, w := range workflows(t) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: its permissions are %v: write {contents: read}, and more at a job", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			if !versioned.MatchString(job.RunsOn) || job.RunsOn != "" && job.Timeout == nil {
				t.Errorf("%s, job %s: runs on %q, ends after %v", file, name, job.RunsOn, job.Timeout)
			}
			if image := job.Container.Image; image != "" && image != "debian:12" {
				t.Errorf("%s, job %s: image %q", file, name, image)
			}
			if called, ok := strings.CutPrefix(job.Uses, "./"); job.Uses != "" && (!ok || !exists(called)) {
				t.Errorf("%s, job %s: uses %q", file, name, job.Uses)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s, job %s: uses %q: name a commit", file, name, step.Uses)
				}
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}
