package main

import (
	"cmp"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// pushed is a registry on loopback with a release in it.
func pushed(t *testing.T, from string) (host, values string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	var first, second strings.Builder
	must(t, push(from, host+"/mirror/", &first))
	must(t, push(from, host+"/mirror", &second)) // the second time changes nothing
	if first.String() != second.String() {
		t.Errorf("the second time: %s", second.String())
	}
	return host, first.String()
}

// smallRelease has one image and the chart, signed.
func smallRelease(t *testing.T) (d *dist, public string) {
	t.Helper()
	d = staged(t, "countersign", "countersign-provider-file")
	d.signer, public = keys(t)
	must(t, d.image(allImages[0], []platform{host()}))
	must(t, d.chart())
	must(t, writeFile(filepath.Join(d.out, d.name("countersign", host())+".cdx.json"), []byte("{}"), 0o644))
	return d, public
}

func TestReleaseIsPushedWithWhatRefersToIt(t *testing.T) {
	command := program(t, "COUNTERSIGN_MINISIGN")
	d, public := smallRelease(t)
	at, _ := pushed(t, d.out)
	for path, want := range map[string]string{"countersign:0.1.0": string(types.OCIImageIndex), "charts/countersign:0.1.0": string(types.OCIManifestSchema1)} {
		ref, err := name.ParseReference(at + "/mirror/" + path)
		must(t, err)
		got, err := remote.Get(ref)
		must(t, err)
		if string(got.MediaType) != want {
			t.Errorf("%s is a %s", path, got.MediaType)
		}
		signature := referrerOf(t, ref, got.Digest, signatureType)
		signed := got.Manifest
		if want == string(types.OCIManifestSchema1) { // of a chart, its archive
			signed = layerOf(t, ref, got.Digest)
		}
		file := filepath.Join(t.TempDir(), "signed")
		must(t, os.WriteFile(file, signed, 0o600))
		must(t, os.WriteFile(file+".minisig", signature, 0o600))
		if out, err := exec.Command(command, "-Vm", file, "-p", public).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	ref, err := name.ParseReference(at + "/mirror/countersign:0.1.0")
	must(t, err)
	index, err := remote.Index(ref)
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	if got := referrerOf(t, ref, manifest.Manifests[0].Digest, billType); string(got) != "{}" {
		t.Errorf("the bill of materials is %s", got)
	}
}

// referrerOf returns the content of the one artifact of a type that refers to a manifest.
func referrerOf(t *testing.T, ref name.Reference, of v1.Hash, kind types.MediaType) []byte {
	t.Helper()
	all, err := remote.Referrers(ref.Context().Digest(of.String()))
	must(t, err)
	manifest, err := all.IndexManifest()
	must(t, err)
	var found []v1.Descriptor
	for _, one := range manifest.Manifests { // whose type this registry takes from the config
		artifact, err := remote.Image(ref.Context().Digest(one.Digest.String()))
		must(t, err)
		about, err := artifact.Manifest()
		must(t, err)
		if about.ArtifactType == string(kind) && about.Subject.Digest == of {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d referrers of type %s: %+v", ref, len(found), kind, manifest.Manifests)
	}
	return layerOf(t, ref, found[0].Digest)
}

// layerOf returns the layer of an artifact.
func layerOf(t *testing.T, ref name.Reference, digest v1.Hash) []byte {
	t.Helper()
	artifact, err := remote.Image(ref.Context().Digest(digest.String()))
	must(t, err)
	layers, err := artifact.Layers()
	must(t, err)
	content, err := layers[0].Compressed()
	must(t, err)
	defer content.Close()
	text, err := io.ReadAll(content)
	must(t, err)
	return text
}

func TestUnsignedReleaseIsPushed(t *testing.T) {
	d, _ := smallRelease(t)
	for _, signature := range []string{"countersign_v0.1.0.oci.minisig", "countersign-0.1.0.tgz.minisig"} {
		must(t, os.Remove(filepath.Join(d.out, signature)))
	}
	pushed(t, d.out)
}

func TestIncompleteReleaseIsNotPushed(t *testing.T) {
	for _, missing := range []string{"", "countersign_v0.1.0.oci.minisig", "countersign-0.1.0.tgz.minisig"} {
		d, _ := smallRelease(t)
		must(t, os.Remove(filepath.Join(d.out, cmp.Or(missing, d.name("countersign", host())+".cdx.json"))))
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
		if err := push(d.out, strings.TrimPrefix(server.URL, "http://")+"/x", io.Discard); !errors.Is(err, os.ErrNotExist) || calls > 0 {
			t.Errorf("%s is missing: %v, after %d calls of the registry", missing, err, calls)
		}
		server.Close()
	}
	if err := push(t.TempDir(), "127.0.0.1:1/x", io.Discard); err == nil || !strings.Contains(err.Error(), "make the release first") {
		t.Error(err)
	}
}

func TestAbsentRegistryIsReported(t *testing.T) {
	d, _ := smallRelease(t)
	if err := push(d.out, "127.0.0.1:1/x", io.Discard); err == nil {
		t.Error("an absent registry takes a release")
	}
}
