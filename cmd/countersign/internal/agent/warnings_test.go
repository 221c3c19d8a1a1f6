package agent

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
)

func TestAgentWithoutStateIsWarnedOfCAsThatBillOrLimit(t *testing.T) {
	for providers, warns := range map[string]bool{
		"[{name: acme}]": true, "[{name: file}, {name: mine, provider: aws}]": true, "[{name: google}]": true,
		"[{name: file}]": false, "[{name: acme, provider: file}]": false,
		"[{name: acme}]\nstate: {dir: /var/lib/countersign/state, key_file: /etc/countersign/state.key}": false,
	} {
		c, _, err := config.Read(config.Input{File: []byte("providers: " + providers + "\n"), FileName: "c.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Warnings(nil, c), "\n"); strings.Contains(got, "state is not set") != warns {
			t.Errorf("%s: %q", providers, got)
		}
	}
}
