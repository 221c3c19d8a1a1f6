package config

import (
	"strings"
	"testing"
)

func TestRemovedSettingNamesWhatToWrite(t *testing.T) {
	output := working + "outputs: [{name: a.b, folder: /a, reload: {pause: 1s}}]\n"
	for file, want := range map[string]string{
		working + "files: {poll_interval: 1s}\n": `unknown setting "files.poll_interval" in countersign.yaml: removed; leave it out: files are read at each change`,
		output:                                   `unknown setting "outputs.a.b.reload.pause" in countersign.yaml: removed; leave it out: reloads are 1s apart`,
		withToken("{command: {args: [/bin/a], raw: true}}"):        `"providers.file.token.command.args" in countersign.yaml: removed; write the program and its arguments as a list`,
		withToken("{sources: [{command: {env: {A: geheim}}}]}"):    `"providers.file.token.sources.0.command.env" in countersign.yaml: removed; write a script`,
		withToken("{exchange: [{url: x, actor: {file: /a}}]}"):     `"providers.file.token.exchange.0.actor" in countersign.yaml: removed; write actor_file`,
		working + "workloads: {peers: [{uid: 1, namespace: a}]}\n": `"workloads.peers.0.namespace" in countersign.yaml: removed; write spiffe_id`,
	} {
		_, _, err := load(file, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "write a list\n") {
			t.Errorf("%s:\n got %v\nwant %s", file, err, want)
		}
	}
	for path, want := range map[string]string{
		"gateway.mode":                          `unknown setting "gateway.mode": removed; write socket.mode`,
		"providers.file.token.command.raw":      `unknown setting "providers.file.token.command.raw": removed; leave it out`,
		"providers.file.token.command.nonsense": "has no settings of its own",
	} {
		if _, _, err := load(working, nil, flag(path, "true")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v", path, err)
		}
	}
}

// A name of a list may have dots; the list's own keys are not those of its entries.
func TestRemovedPathMatchesAnyEntry(t *testing.T) {
	for path, want := range map[string]bool{
		"outputs.a.reload.pause": true, "outputs.a.b.reload.pause": true, "outputs.reload.pause": false, "my.outputs.a.reload.pause": false,
		"outputs.a.reload.pauses": false, "rotation": true, "rotation.ratio": false,
	} {
		if got := instead(path) != ""; got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
