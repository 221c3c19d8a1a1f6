//go:build e2e && linux

package program

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

const deployed = "../../../../deploy/kustomize/discovery/discovery.yaml"

// TestRealDeployedConfiguration runs the service as it is deployed, but for what is of the
// pod: addresses, folders, and istiod, which signs its certificate there.
func TestRealDeployedConfiguration(t *testing.T) {
	if _, err := config.Read(nil, withLock(t)); err != nil { // validate also looks for what only the image has
		t.Fatal(err)
	}
	c := newRealm(t, kubetest.Options{Name: "Kubernetes"})
	c.account(shop, "web", true)
	c.put("shop/foo", tlsOf(t, "served"))
	w := &world{program: start(t, deployedHere(t, c)), home: c}
	w.ready(t)
	ca := w.authority(t)
	w.signs = map[string]authority{"home": ca}
	for credential, v := range w.visitors(t, "home/shop/web") {
		v.tls.InsecureSkipVerify = true // it shows a SPIFFE ID and no name, which Go does not verify
		v.tls.VerifyConnection = func(s tls.ConnectionState) error { return isDiscovery(s, ca.roots) }
		for protocol := range dialects {
			t.Run(credential+", "+protocol, func(t *testing.T) {
				got := w.comes(t, v, protocol, plain, plain+"-cacert")
				got.gets(t, plain, "key served", w)
				got.gets(t, plain+"-cacert", "CA ca of served", w)
			})
		}
	}
	if s := w.cluster(t, "Kubernetes"); !synced(s) || s.Fault != "" {
		t.Errorf("with the base's rights: %+v", s)
	}
	silent(t, w)
}

// withLock is the configuration as it is, with the lock file of the image here.
func withLock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "countersign.lock")
	pins := lock.Lock{}
	pins.Put(lock.Provider{
		Name: "citadel", Version: "1", Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH,
		File: "countersign-provider-citadel", SHA256: strings.Repeat("0a", 32),
	})
	if err := pins.Write(path); err != nil {
		t.Fatal(err)
	}
	const inImage = "/usr/lib/countersign/countersign.lock"
	text := read(t, deployed)
	if !strings.Contains(text, "lock: "+inImage+"\n") {
		t.Errorf("the base has not the lock file of the image, %s", inImage)
	}
	file := filepath.Join(dir, "discovery.yaml")
	write(t, file, strings.ReplaceAll(text, inImage, path))
	return file
}

func isDiscovery(s tls.ConnectionState, roots *x509.CertPool) error {
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		return err
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://cluster.local/ns/istio-system/sa/countersign-discovery" {
		return errors.New("it is somebody else")
	}
	return nil
}

// deployedHere is the folder of a service with that configuration.
func deployedHere(t *testing.T, c realm) string {
	t.Helper()
	var base map[string]any
	if err := yaml.Unmarshal([]byte(read(t, deployed)), &base); err != nil {
		t.Fatal(err)
	}
	for _, ofPod := range []string{"providers", "lock", "runtime_dir", "status"} {
		if base[ofPod] == nil {
			t.Errorf("the base has no %s", ofPod)
		}
		delete(base, ofPod)
	}
	base["cluster"].(map[string]any)["kubeconfig"] = "DIR/home"
	text, err := yaml.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	dir := files(t, strings.Join([]string{string(text), "listen: {tls: '127.0.0.1:0'}", "status: {address: 'unix:DIR/page'}", "PROVIDERS", atOnce}, "\n"))
	write(t, filepath.Join(dir, "home"), string(c.kubeconfig()))
	return dir
}
