package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	service "github.com/countersign-dev/countersign/discovery"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// standalone is the program countersign-discovery without Kubernetes: what is in a folder,
// for whoever shows a certificate of its CA.
type standalone struct {
	*process
	path    string // of the program
	dir     string // the files
	keys    string // chain.pem, key.pem and roots.pem of a client
	page    string // the socket of its status
	root    *authority
	address string
}

func startStandalone(t *testing.T) *standalone {
	t.Helper()
	bin, own, ca := binaries(t), proctest.Folder(t), proctest.Folder(t)
	d := &standalone{path: filepath.Join(bin, "countersign-discovery"), dir: proctest.Folder(t), keys: proctest.Folder(t), page: filepath.Join(own, "page")}
	d.root = newAuthorityIn(t, ca, "root of the service")
	d.root.writeClient(t, d.keys, "/ns/e2e/sa/client")
	content, err := json.Marshal(map[string]any{ // JSON is YAML
		"listen":        map[string]any{"tls": "127.0.0.1:0"},
		"certificate":   map[string]any{"dns_names": []string{"localhost"}},
		"dev":           true,
		"runtime_dir":   own,
		"providers":     []map[string]any{{"name": "file", "settings": map[string]any{"dir": ca}}},
		"trust_domains": []map[string]any{{"name": trustDomain, "own_ca": true}},
		"cluster":       map[string]any{"disabled": true},
		"resources":     map[string]any{"folder": d.dir},
		"times":         map[string]any{"drain": "0s"},
		"status":        map[string]any{"address": "unix:" + d.page},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(own, "discovery.yaml")
	writeWhole(t, config, content)
	d.process = startProcess(t, d.path, "serve", "--config", config)
	line := d.log.await(t, "serving ADS and SDS over TLS")
	d.address = regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(line)[1]
	poll(t, "the service to be ready", func() bool { return d.status(t).Server.NotReady == "" })
	return d
}

// write puts a file into the folder at once.
func (d *standalone) write(t *testing.T, name, text string) {
	t.Helper()
	writeWhole(t, filepath.Join(d.dir, name), []byte(text))
}

// standaloneStatus is what the tests read of the command's JSON.
type standaloneStatus struct {
	Server service.Status `json:"server"`
}

// status runs the command.
func (d *standalone) status(t *testing.T) (seen standaloneStatus) {
	t.Helper()
	out, err := exec.Command(d.path, "status", "-o", "json", "--address", "unix:"+d.page).Output()
	if err != nil {
		seen.Server.NotReady = err.Error() // the page is not open yet
		return seen
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return seen
}

// typeStatus returns what the service knows of one type, whichever stream that is on.
func (d *standalone) typeStatus(t *testing.T, url string) service.TypeStatus {
	t.Helper()
	return typeOf(d.status(t).Server, url)
}

func typeOf(status service.Status, url string) service.TypeStatus {
	for _, stream := range status.Streams {
		for _, of := range stream.Types {
			if of.Type == url {
				return of
			}
		}
	}
	return service.TypeStatus{}
}
