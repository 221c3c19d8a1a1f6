package main

import (
	"bytes"
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
// the Docker or Podman configuration. All files are read before the first is pushed, so that an
// incomplete release changes nothing. Pushing again changes nothing either. It writes the chart's values
// for that registry, with the images by their digests.
func push(from, registry string, values io.Writer) error {
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
	signatures, err := filepath.Glob(filepath.Join(from, "*.minisig"))
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "countersign-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	p := &pusher{from: from, registry: strings.TrimSuffix(registry, "/"), temp: temp, signed: len(signatures) > 0, digests: map[string]string{}}
	if err := p.all(images, charts[0]); err != nil {
		return err
	}
	return p.writeValues(values)
}

type pusher struct {
	from, registry string
	temp           string            // for images that are unpacked
	signed         bool              // the release has signatures; without a key, it has none
	digests        map[string]string // of the images, by their programs
}

// programOf is what runs in the parts of the chart.
var programOf = []struct{ part, program string }{
	{"agent", "countersign"}, {"sidecar", "countersign"}, {"discovery", "countersign-discovery"}, {"ra", "countersign-ra"},
}

func (p *pusher) writeValues(to io.Writer) error {
	_, err := fmt.Fprintf(to, "image: {registry: %s}\n", p.registry)
	for _, of := range programOf {
		if digest := p.digests[of.program]; digest != "" {
			_, failed := fmt.Fprintf(to, "%s: {image: %q}\n", of.part, of.program+"@"+digest)
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (p *pusher) all(images []string, chart string) error {
	var ready []func() error
	for _, file := range images {
		write, err := p.image(file)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		ready = append(ready, write)
	}
	write, err := p.chart(chart)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(chart), err)
	}
	for _, write := range append(ready, write) {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

var withKeychain = remote.WithAuthFromKeychain(authn.DefaultKeychain)

// image reads an image for all platforms, and returns what pushes it.
func (p *pusher) image(file string) (write func() error, err error) {
	program, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".oci.tar"), "_")
	temp := filepath.Join(p.temp, program)
	if err := errors.Join(os.Mkdir(temp, 0o700), untar(file, temp)); err != nil {
		return nil, err
	}
	all, err := indexIn(temp)
	if err != nil {
		return nil, err
	}
	repository, err := name.NewRepository(p.registry + "/" + program)
	if err != nil {
		return nil, err
	}
	referrers, err := p.referrers(file, version, all)
	if err != nil {
		return nil, err
	}
	digest, err := all.Digest()
	if err != nil {
		return nil, err
	}
	p.digests[program] = digest.String()
	return func() error {
		if err := remote.WriteIndex(repository.Tag(strings.TrimPrefix(version, "v")), all, withKeychain); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		return p.attach(repository, referrers...)
	}, nil
}

// referrer is a file that refers to a manifest.
type referrer struct {
	subject v1.Descriptor
	kind    types.MediaType
	content []byte
}

// referrers reads the signature of an image, and the bills of materials of its platforms.
func (p *pusher) referrers(file, version string, all v1.ImageIndex) ([]referrer, error) {
	whole, err := partial.Descriptor(all)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	referrers, err := p.signature(*whole, file)
	for _, one := range manifest.Manifests {
		bill := fmt.Sprintf("countersign_%s_%s_%s.cdx.json", version, one.Platform.OS, one.Platform.Architecture)
		content, missing := os.ReadFile(filepath.Join(p.from, bill))
		err = errors.Join(err, missing)
		referrers = append(referrers, referrer{one, billType, content})
	}
	return referrers, err
}

// signature reads the signature of a file, if the release has signatures.
func (p *pusher) signature(subject v1.Descriptor, file string) ([]referrer, error) {
	if !p.signed {
		return nil, nil
	}
	content, err := os.ReadFile(signatureOf(file))
	return []referrer{{subject, signatureType, content}}, err
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

// chart reads the chart, and returns what pushes it as `helm push` does.
func (p *pusher) chart(file string) (write func() error, err error) {
	packed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text, err := fileIn(packed, "countersign/Chart.yaml")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for _, match := range chartField.FindAllStringSubmatch(string(text), -1) {
		fields[match[1]] = match[2]
	}
	config, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	repository, err := name.NewRepository(p.registry + "/charts/" + fields["name"])
	if err != nil {
		return nil, err
	}
	signatures, err := p.signature(v1.Descriptor{}, file)
	return func() error {
		pushed, err := p.artifact(repository, fields["version"], v1.Manifest{}, static.NewLayer(config, helmConfig), static.NewLayer(packed, helmChart))
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		for i := range signatures {
			signatures[i].subject = pushed
		}
		return p.attach(repository, signatures...)
	}, err
}

// attach pushes what refers to manifests.
func (p *pusher) attach(repository name.Repository, all ...referrer) error {
	for _, r := range all {
		about := v1.Manifest{ArtifactType: string(r.kind), Subject: &v1.Descriptor{MediaType: r.subject.MediaType, Digest: r.subject.Digest, Size: r.subject.Size}}
		if _, err := p.artifact(repository, "", about, static.NewLayer([]byte("{}"), emptyConfig), static.NewLayer(r.content, r.kind)); err != nil {
			return fmt.Errorf("%s: %w", repository, err)
		}
	}
	return nil
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
