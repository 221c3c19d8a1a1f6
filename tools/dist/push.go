package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The media types of what a registry has beside images.
const (
	emptyConfig   = types.MediaType("application/vnd.oci.empty.v1+json")
	helmConfig    = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	helmChart     = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
	billType      = types.MediaType("application/vnd.cyclonedx+json")
	signatureType = types.MediaType("application/vnd.countersign.minisign.v1")
)

// push puts the images and the chart of a release into a registry, each with its signature and the
// images with their bills of materials as referrers (OCI distribution 1.1). The account is that of
// the Docker or Podman configuration. Pushing again changes nothing.
func push(from, registry string) error {
	p := &pusher{from: from, registry: strings.TrimSuffix(registry, "/")}
	images, err := filepath.Glob(filepath.Join(from, "*.oci.tar"))
	if err != nil {
		return err
	}
	charts, err := filepath.Glob(filepath.Join(from, "countersign-[0-9]*.tgz"))
	if err != nil {
		return err
	}
	if len(images) == 0 || len(charts) != 1 {
		return fmt.Errorf("%s has %d images and %d charts: make the release first", from, len(images), len(charts))
	}
	for _, file := range images {
		if err := p.image(file); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	if err := p.chart(charts[0]); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(charts[0]), err)
	}
	return nil
}

type pusher struct{ from, registry string }

var withKeychain = remote.WithAuthFromKeychain(authn.DefaultKeychain)

// image pushes an image for all platforms.
func (p *pusher) image(file string) error {
	program, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".oci.tar"), "_")
	temp, err := os.MkdirTemp("", "countersign-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := untar(file, temp); err != nil {
		return err
	}
	all, err := indexIn(temp)
	if err != nil {
		return err
	}
	repository, err := name.NewRepository(p.registry + "/" + program)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(repository.Tag(strings.TrimPrefix(version, "v")), all, withKeychain); err != nil {
		return err
	}
	whole, err := partial.Descriptor(all)
	if err != nil {
		return err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	errs := []error{p.attach(repository, *whole, signatureType, signatureOf(file))}
	for _, one := range manifest.Manifests {
		bill := fmt.Sprintf("countersign_%s_%s_%s.cdx.json", version, one.Platform.OS, one.Platform.Architecture)
		one.Platform = nil // which a subject does not have
		errs = append(errs, p.attach(repository, one, billType, filepath.Join(p.from, bill)))
	}
	return errors.Join(errs...)
}

// indexIn returns the image of a layout, for all platforms.
func indexIn(folder string) (v1.ImageIndex, error) {
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("the layout has %d images, not one", len(manifest.Manifests))
	}
	return outer.ImageIndex(manifest.Manifests[0].Digest)
}

// signatureOf is the file with the signature of an image's index, which is what a tag resolves to,
// or of a chart.
func signatureOf(file string) string {
	return strings.TrimSuffix(file, ".tar") + ".minisig"
}

// chartField matches the fields of Chart.yaml that have one line.
var chartField = regexp.MustCompile(`(?m)^(apiVersion|name|version|appVersion|description|type|kubeVersion): "?([^"\n]*)"?$`)

// chart pushes the chart as `helm push` does.
func (p *pusher) chart(file string) error {
	packed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := fileIn(packed, "countersign/Chart.yaml")
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for _, match := range chartField.FindAllStringSubmatch(string(text), -1) {
		fields[match[1]] = match[2]
	}
	config, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	repository, err := name.NewRepository(p.registry + "/charts/" + fields["name"])
	if err != nil {
		return err
	}
	pushed, err := p.artifact(repository, fields["version"], v1.Manifest{}, static.NewLayer(config, helmConfig), static.NewLayer(packed, helmChart))
	if err != nil {
		return err
	}
	return p.attach(repository, pushed, signatureType, signatureOf(file))
}

// attach pushes a file that refers to a manifest. Without a key a release has no signatures.
func (p *pusher) attach(repository name.Repository, subject v1.Descriptor, kind types.MediaType, file string) error {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && kind == signatureType {
		return nil
	}
	if err != nil {
		return err
	}
	about := v1.Manifest{ArtifactType: string(kind), Subject: &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}}
	_, err = p.artifact(repository, "", about, static.NewLayer([]byte("{}"), emptyConfig), static.NewLayer(content, kind))
	return err
}

// artifact pushes a manifest with a config and one layer, by a tag or by its digest alone.
func (p *pusher) artifact(repository name.Repository, tag string, m v1.Manifest, config, content v1.Layer) (pushed v1.Descriptor, err error) {
	m.SchemaVersion, m.MediaType = 2, types.OCIManifestSchema1
	for _, layer := range []v1.Layer{config, content} {
		if err := remote.WriteLayer(repository, layer, withKeychain); err != nil {
			return v1.Descriptor{}, err
		}
		described, err := partial.Descriptor(layer)
		if err != nil {
			return v1.Descriptor{}, err
		}
		if layer == config {
			m.Config = *described
		} else {
			m.Layers = append(m.Layers, *described)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return v1.Descriptor{}, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return v1.Descriptor{}, err
	}
	var ref name.Reference = repository.Digest(digest.String())
	if tag != "" {
		ref = repository.Tag(strings.ReplaceAll(tag, "+", "_")) // as Helm does
	}
	return v1.Descriptor{MediaType: m.MediaType, Digest: digest, Size: size}, remote.Put(ref, rawManifest(text), withKeychain)
}

// rawManifest is a manifest as it is pushed.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error)        { return m, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// untar unpacks what this program has packed.
func untar(file, to string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeDir:
			err = root.MkdirAll(strings.TrimSuffix(header.Name, "/"), 0o755)
		default:
			err = fill(root, header.Name, reader)
		}
		if err != nil {
			return err
		}
	}
}

func fill(root *os.Root, name string, from io.Reader) error {
	out, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// fileIn returns a file of a .tgz.
func fileIn(packed []byte, name string) ([]byte, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if header.Name == name {
			return io.ReadAll(reader)
		}
	}
}
