package config

import (
	"slices"
	"strings"
	"testing"
)

func TestStateNeedsFolderAndOneExternalKey(t *testing.T) {
	for block, says := range map[string]string{
		"{dir: /var/lib/a}": `state.key_file is not set`,
		"{key_file: /k}":    `state.dir is not set`,
		"{dir: /var/lib/a, key_file: /k, key_command: [/bin/k]}": "keep one of the two",
		"{dir: /var/lib/a, key_command: [k]}":                    `state.key_command is "k"`,
		"{dir: /var/lib/a, key_file: /var/lib/a/key}":            "a copy of that folder",
		"{dir: ./a, key_file: a/deep/../key}":                    "a copy of that folder",
		"{dir: /var/lib/a, keyfile: /k}":                         `did you mean "state.key_file"?`,
	} {
		c, _, err := Read(Input{File: []byte(working + "state: " + block), FileName: "c.yaml"})
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", block, err, says)
		}
	}
	for _, block := range []string{"{}", "{dir: /a, key_file: /ab/key}", "{dir: a, key_file: ../key}", "{dir: /a, key_command: [/bin/kms, get]}"} {
		read(t, working+"state: "+block)
	}
}

func TestStateIsExplainedAndNeedsRestart(t *testing.T) {
	with := read(t, working+"state: {dir: /a, key_file: /k}")
	if got := explained(t, with, "state.key_file"); got.Value != "/k" || got.From != "c.yaml:8" {
		t.Errorf("got %+v", got)
	}
	changed := Changed(read(t, working), with)
	if want := []string{"state.dir", "state.key_file"}; !slices.Equal(changed, want) || !slices.Equal(NeedRestart(changed), want) {
		t.Errorf("changed is %q", changed)
	}
}
