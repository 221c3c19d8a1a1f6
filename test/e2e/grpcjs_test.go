package e2e

import (
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// grpcjs is an SDS client on @grpc/grpc-js, told by lines of JSON (grpcjs/client.js).
type grpcjs struct {
	in      *json.Encoder
	opened  int // streams
	events  chan jsEvent
	secrets map[string]jsSecret // the last of each name
	removed []string
}

type jsEvent struct {
	Stream   int         `json:"stream"`
	Response *jsResponse `json:"response"`
	End      *struct {
		Code    int    `json:"code"`
		Details string `json:"details"`
	} `json:"end"`
}

type jsResponse struct {
	Version string     `json:"version_info"`
	Nonce   string     `json:"nonce"`
	Removed []string   `json:"removed_resources"`
	Secrets []jsSecret `json:"secrets"`
}

type jsSecret struct {
	Name         string `json:"name"`
	Version      string `json:"version"` // in delta only
	Certificates string `json:"certificates"`
	KeyFits      bool   `json:"keyFits"`
}

// object is a request as in grpcjs/sds.proto.
type object map[string]any

// needGRPCJS returns the folder with node and node_modules.
func needGRPCJS(t *testing.T) string {
	t.Helper()
	return programs.Foreign(t, "COUNTERSIGN_GRPCJS")
}

// startGRPCJS starts the client. It is gone when the test ends.
func startGRPCJS(t *testing.T, socket string) *grpcjs {
	t.Helper()
	folder := needGRPCJS(t)
	log := &logtest.Log{}
	cmd := exec.Command(filepath.Join(folder, "node"), programs.File(t, "test/e2e/grpcjs/client.js"), socket)
	cmd.Env = []string{"NODE_PATH=" + filepath.Join(folder, "node_modules")}
	cmd.Stderr, cmd.WaitDelay = log, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &grpcjs{in: json.NewEncoder(in), events: make(chan jsEvent, 1000), secrets: map[string]jsSecret{}}
	read := make(chan struct{})
	go func() { defer close(read); c.follow(out) }()
	t.Cleanup(func() {
		in.Close() // it ends
		<-read
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the client on grpc-js ended with %v:\n%s", err, log)
		}
	})
	return c
}

// follow hands on what the client tells.
func (c *grpcjs) follow(out io.Reader) {
	defer close(c.events)
	for decoder := json.NewDecoder(out); ; {
		var event jsEvent
		if decoder.Decode(&event) != nil {
			return
		}
		c.events <- event
	}
}

func (c *grpcjs) tell(t *testing.T, command object) {
	t.Helper()
	if err := c.in.Encode(command); err != nil {
		t.Fatal(err)
	}
}

// open opens a new stream of a method, with a first request.
func (c *grpcjs) open(t *testing.T, method string, first object) {
	t.Helper()
	c.opened++
	c.tell(t, object{"open": method})
	first["node"] = object{"id": "grpcjs"}
	c.send(t, first)
}

func (c *grpcjs) send(t *testing.T, request object) {
	t.Helper()
	request["type_url"] = secretType
	c.tell(t, object{"send": request})
}

// next returns what the client tells next of the stream that it opened last.
func (c *grpcjs) next(t *testing.T) (event jsEvent) {
	t.Helper()
	deadline := time.After(patience)
	for event.Stream != c.opened {
		var ok bool
		select {
		case event, ok = <-c.events:
			if !ok {
				t.Fatal("the client on grpc-js has ended")
			}
		case <-deadline:
			t.Fatalf("waited %s in vain for the client on grpc-js", patience)
		}
	}
	return event
}

// response returns the next response, whose secrets it keeps.
func (c *grpcjs) response(t *testing.T) *jsResponse {
	t.Helper()
	event := c.next(t)
	if event.Response == nil {
		t.Fatalf("the stream ended: %+v", event.End)
	}
	for _, secret := range event.Response.Secrets {
		if secret.KeyFits == (secret.Name == "ROOTCA") {
			t.Errorf("%s: its key fits: %v", secret.Name, secret.KeyFits)
		}
		c.secrets[secret.Name] = secret
	}
	c.removed = append(c.removed, event.Response.Removed...)
	return event.Response
}

// unavailable waits for the stream's end, which an agent that stops gives it.
func (c *grpcjs) unavailable(t *testing.T) {
	t.Helper()
	event := c.next(t)
	for event.End == nil {
		event = c.next(t)
	}
	if event.End.Code != 14 {
		t.Errorf("the stream ended with code %d (%s), want 14, unavailable", event.End.Code, event.End.Details)
	}
}

var refusedByJS = object{"code": 3, "message": "not on grpc-js"}

// refusal waits until the agent has told that a client refused one secret.
func (a *agent) refusal(t *testing.T, secret string) {
	t.Helper()
	a.log.await(t, "refused a version", "not on grpc-js", "names="+secret, "node=grpcjs")
	poll(t, "the refusal in /metrics", func() bool { return a.metric(t, "countersign_stream_events_total", `event="nacked"`) == 1 })
}

func TestGRPCJSRefusesAndReconnectsInStateOfTheWorld(t *testing.T) {
	t.Parallel()
	needGRPCJS(t)
	a := startAgent(t, agentConfig{})
	c := startGRPCJS(t, a.socket)
	names := []string{"client", "ROOTCA"}
	last := c.listAll(t, "", names)

	rotated := c.response(t) // that of last, which was accepted
	refused := c.secrets["client"]
	c.send(t, object{"resource_names": names, "version_info": last.Version, "response_nonce": rotated.Nonce, "error_detail": refusedByJS})
	a.refusal(t, "client")
	next := c.response(t)
	if len(next.Secrets) != 1 || c.secrets["client"].Certificates == refused.Certificates {
		t.Errorf("after the refusal came %d secrets, want another certificate", len(next.Secrets))
	}

	c.listAll(t, next.Version, names)
	root := c.secrets["ROOTCA"]
	a.stop(t, syscall.SIGTERM)
	c.unavailable(t)
	a.start(t)
	c.listAll(t, next.Version, names)
	if c.secrets["ROOTCA"] != root {
		t.Error("the same root is another secret after a restart")
	}
}

// listAll opens a stream, with the version of an earlier one, and accepts what comes
// until all names are there. It returns the last response.
func (c *grpcjs) listAll(t *testing.T, version string, names []string) (last *jsResponse) {
	t.Helper()
	clear(c.secrets)
	c.open(t, "StreamSecrets", object{"resource_names": names, "version_info": version})
	for len(c.secrets) < len(names) {
		last = c.response(t)
		c.send(t, object{"resource_names": names, "version_info": last.Version, "response_nonce": last.Nonce})
	}
	return last
}

func TestGRPCJSRefusesAndResumesIncrementally(t *testing.T) {
	t.Parallel()
	needGRPCJS(t)
	a := startAgent(t, agentConfig{})
	c := startGRPCJS(t, a.socket)
	c.open(t, "DeltaSecrets", object{"resource_names_subscribe": []string{"client", "ROOTCA", "nobody"}})
	for len(c.secrets) < 2 || len(c.removed) == 0 {
		c.send(t, object{"response_nonce": c.response(t).Nonce})
	}
	if !slices.Equal(c.removed, []string{"nobody"}) {
		t.Errorf("%v were removed, want nobody", c.removed)
	}

	rotated := c.response(t)
	refused := c.secrets["client"]
	c.send(t, object{"response_nonce": rotated.Nonce, "error_detail": refusedByJS})
	a.refusal(t, "client")
	if next := c.response(t); len(next.Secrets) != 1 || c.secrets["client"].Version == refused.Version {
		t.Errorf("after the refusal came %v, want another certificate", next.Secrets)
	}

	c.resumes(t)
	a.stop(t, syscall.SIGTERM)
	c.unavailable(t)
	a.start(t)
	c.resumes(t)
}

// resumes opens a stream with what the client holds, and demands what changed alone.
func (c *grpcjs) resumes(t *testing.T) {
	t.Helper()
	held := object{}
	for name, secret := range c.secrets {
		held[name] = secret.Version
	}
	c.open(t, "DeltaSecrets", object{"initial_resource_versions": held, "resource_names_subscribe": []string{"client", "ROOTCA"}})
	got := c.response(t).Secrets
	if len(got) != 1 || got[0].Name != "client" || got[0].Version == held["client"] {
		t.Errorf("resumed, and got %d secrets, want the new certificate alone", len(got))
	}
}
