package spiresecret

import (
	"crypto/x509"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// What is served has a key that signs for its leaf, whatever the Workload API sends.
func FuzzReply(f *testing.F) {
	const id = "spiffe://example.org/web"
	root := certtest.Root(f)
	leaf := root.Leaf(f, time.Hour, id)
	key, err := x509.MarshalPKCS8PrivateKey(leaf.Key)
	if err != nil {
		f.Fatal(err)
	}
	good, err := proto.Marshal(&workloadv1.X509SVIDResponse{
		Svids:            []*workloadv1.X509SVID{{SpiffeId: id, X509Svid: leaf.Cert.Raw, X509SvidKey: key, Bundle: root.Cert.Raw}},
		FederatedBundles: map[string][]byte{"spiffe://example.com": root.Cert.Raw},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	specs := []Spec{
		{Name: "default", Kind: secret.KeyPair}, {Name: "ROOTCA", Kind: secret.TrustBundle},
		{Name: "foreign", Kind: secret.TrustBundle, TrustDomain: "example.com"},
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var reply workloadv1.X509SVIDResponse
		if proto.Unmarshal(wire, &reply) != nil {
			return
		}
		for _, spec := range specs {
			if item, _, err := spec.read(&reply, time.Now()); err == nil {
				checkItem(t, item)
			}
		}
	})
}

func checkItem(t *testing.T, item *secret.Item) {
	t.Helper()
	if item.Kind == secret.TrustBundle {
		if roots, err := pki.ParseCertificates(item.Roots); err != nil || len(roots) == 0 {
			t.Errorf("%d roots, %v", len(roots), err)
		}
		return
	}
	key, err := item.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(item.Chain)
	if err != nil || !pki.SameKey(key.Public(), certs[0].PublicKey) {
		t.Errorf("the key is not that of the chain: %v", err)
	}
}
