package trustbundle

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"testing"
)

// A hash is not chosen: whoever made the certificate does not have its key either.
func TestCertificateForRevokedRootsHasNoPrivateKey(t *testing.T) {
	all := revoked().Certificates()
	key, ok := all[0].PublicKey.(*ecdsa.PublicKey)
	if !ok || len(all) != 1 {
		t.Fatalf("%d certificates, with a key of type %T", len(all), all[0].PublicKey)
	}
	point, err := key.Bytes() // 4, x, y
	if hash := sha256.Sum256([]byte(revokedSeed)); err != nil || !bytes.Equal(point[1:33], hash[:]) {
		t.Errorf("the public key is %x, %v", point, err)
	}
}
