package languages_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/languages"
)

var update = flag.Bool("update", false, "write the copies of the protocol")

// copies are the files with the protocol that each library reads or is generated from.
var copies = []string{"provider.binpb", "python/src/countersign_provider/provider.binpb", "node/lib/provider.binpb"}

func TestLibrariesHaveProtocol(t *testing.T) {
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(protocol())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range copies {
		if *update {
			if err := os.WriteFile(name, want, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := fs.ReadFile(languages.Sources(), name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not proto/provider/v1/provider.proto (%v): go test ./sdk/languages -update", name, err)
		}
	}
}

func TestLibrariesHaveLicense(t *testing.T) {
	want, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"python", "node", "rust"} {
		if got, err := fs.ReadFile(languages.Sources(), language+"/LICENSE"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s/LICENSE is not that of the repository (%v): copy it", language, err)
		}
	}
}

func TestRustCodeIsOfProtocol(t *testing.T) {
	protocol, err := fs.ReadFile(languages.Sources(), "provider.binpb")
	if err != nil {
		t.Fatal(err)
	}
	code, err := fs.ReadFile(languages.Sources(), "rust/src/proto.rs")
	if want := fmt.Sprintf("provider.binpb, SHA-256 %x.\n", sha256.Sum256(protocol)); err != nil || !bytes.Contains(code, []byte(want)) {
		t.Errorf("rust/src/proto.rs is not of the protocol (%v): cargo run --manifest-path sdk/languages/rust/generate/Cargo.toml", err)
	}
}

// protocol returns the protocol's file after those that it imports.
func protocol() *descriptorpb.FileDescriptorSet {
	var set descriptorpb.FileDescriptorSet
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		if !slices.ContainsFunc(set.File, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == file.Path() }) {
			set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
		}
	}
	add(providerv1.File_provider_v1_provider_proto)
	return &set
}
