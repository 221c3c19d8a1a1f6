package pluginhost_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gproto "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/countersign-dev/countersign/internal/test/programs"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// languages are the examples in other languages, by the variable that names the
// folder where `make` has installed them, and the folder of their interpreter.
var languages = map[string]struct{ folder, interpreter string }{
	"python": {"COUNTERSIGN_PROVIDER_PYTHON", "venv/bin"},
	"node":   {"COUNTERSIGN_PROVIDER_NODE", "."},
}

// findInterpreters puts the interpreters on the PATH, where the host finds them.
func findInterpreters() {
	for _, language := range languages {
		if folder := os.Getenv(language.folder); folder != "" {
			_ = os.Setenv("PATH", filepath.Join(folder, language.interpreter)+":"+os.Getenv("PATH"))
		}
	}
}

// needLanguage returns the folder with the example.
func needLanguage(t *testing.T, name string) string {
	t.Helper()
	return programs.Foreign(t, languages[name].folder)
}

func TestForeignLanguageProviderRestartsWithItsRoot(t *testing.T) {
	for name, authentication := range map[string]pluginhost.Authentication{"python": pluginhost.PinnedTLS, "node": pluginhost.Channel} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.opts.Dirs = []string{needLanguage(t, name)}
			p := h.open(t, pluginhost.Entry{Name: name, Settings: map[string]any{"dir": t.TempDir(), "trust_domain": "example.org"}})
			first := p.Status()
			if first.Authentication != authentication {
				t.Errorf("authenticated by %q", first.Authentication)
			}
			sign(t, p)
			before, err := p.Roots(t.Context())
			must(t, err)
			must(t, syscall.Kill(first.PID, syscall.SIGKILL))
			h.rec.awaitState(t, pluginhost.Ready, 2)
			sign(t, p)
			after, err := p.Roots(t.Context())
			must(t, err)
			if len(before) == 0 || !bytes.Equal(before, after) {
				t.Errorf("the roots before and after:\n%s\n%s", before, after)
			}
		})
	}
}

func TestForeignLanguageProviderReportsErrors(t *testing.T) {
	for name := range languages {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.opts.Dirs = []string{needLanguage(t, name)}
			_, err := pluginhost.Open(t.Context(), h.opts, pluginhost.Entry{Name: name, Settings: map[string]any{"dri": "x"}})
			if err == nil || !strings.Contains(err.Error(), "dri") || !strings.Contains(err.Error(), "trust_domain") {
				t.Fatalf("%v", err)
			}
			p := h.open(t, pluginhost.Entry{Name: name, Settings: map[string]any{"dir": t.TempDir(), "trust_domain": "another.org"}})
			if _, err := p.CSRSign(t.Context(), request(t)); !errors.Is(err, ca.ErrDenied) {
				t.Errorf("another trust domain: %v", err)
			}
			broken := request(t)
			broken.CSR = []byte("no CSR")
			if _, err := p.CSRSign(t.Context(), broken); !errors.Is(err, ca.ErrInvalid) {
				t.Errorf("no CSR: %v", err)
			}
		})
	}
}

func TestExamplesMatchProtocol(t *testing.T) {
	proto, err := os.ReadFile(programs.File(t, "proto/provider/v1/provider.proto"))
	must(t, err)
	copied, err := os.ReadFile(programs.File(t, "examples/provider-node/provider.proto"))
	must(t, err)
	if !bytes.Equal(proto, copied) {
		t.Error("examples/provider-node/provider.proto is another than proto/provider/v1/provider.proto: copy it")
	}

	folder := needLanguage(t, "python")
	show := exec.Command("python3", "-c", "import sys, provider_pb2; sys.stdout.buffer.write(provider_pb2.DESCRIPTOR.serialized_pb)")
	show.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+folder)
	generated, err := show.Output()
	must(t, err)
	ours := protodesc.ToFileDescriptorProto(providerv1.File_provider_v1_provider_proto)
	ours.Name = new("provider.proto")
	var theirs descriptorpb.FileDescriptorProto
	must(t, gproto.Unmarshal(generated, &theirs))
	for _, message := range ours.GetMessageType() {
		for _, field := range message.GetField() {
			field.JsonName = nil // what every generator derives from the name
		}
	}
	if !gproto.Equal(ours, &theirs) {
		t.Error("the stubs of examples/provider-python are not of proto/provider/v1/provider.proto: generate them as its README says")
	}
}
