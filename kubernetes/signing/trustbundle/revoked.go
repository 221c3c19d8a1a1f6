package trustbundle

import (
	"sync"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// revokedPEM is a CA certificate without a known private key: the x coordinate of its public key is the SHA-256
// hash of revokedSeed.
const revokedPEM = `-----BEGIN CERTIFICATE-----
MIIB0zCCAXigAwIBAgIBATAKBggqhkjOPQQDAjA/MT0wOwYDVQQDDDRub25lOiB0
aGlzIHRydXN0IGRvbWFpbiBoYXMgcmV2b2tlZCBhbGwgb2YgaXRzIHJvb3RzMCAX
DTAwMDEwMTAwMDAwMFoYDzk5OTkxMjMxMjM1OTU5WjA/MT0wOwYDVQQDDDRub25l
OiB0aGlzIHRydXN0IGRvbWFpbiBoYXMgcmV2b2tlZCBhbGwgb2YgaXRzIHJvb3Rz
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE4gH5KR7MNGNC5w4A60vr/Phe7A2n
zeqDi/S3H1BHwQYht1YArUwbm7ihnlsnIegAw/TLhDpgZBlFZn+zvjUbVKNjMGEw
DwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFGrWS3xb
cHtmkzOpq/a9cJrbnV2GMB8GA1UdIwQYMBaAFGrWS3xbcHtmkzOpq/a9cJrbnV2G
MAoGCCqGSM49BAMCA0kAMEYCIQCJ7G+XTUDTiF8tHVylvlGLvvNkIyVVKeRPUZg8
iYnQbwIhAJPfisdZ8l+06SPU+1tYGOprluOrmyzWe3nJnA4WxI/A
-----END CERTIFICATE-----
`

const revokedSeed = "countersign: no private key"

// revoked returns what the object of a trust domain has that has revoked all of its roots: no certificate
// verifies with it. An object cannot be empty. If it were deleted, the kubelet would update no file of a volume
// that requires it, and the roots that were revoked would stay there.
var revoked = sync.OnceValue(func() *pki.Bundle {
	bundle, err := pki.ParseBundle([]byte(revokedPEM))
	if err != nil {
		panic(err) // a test reads it
	}
	return bundle
})
