package authn

import (
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Kind is how a caller was verified, one word that fits a metric.
type Kind string

// The kinds.
const (
	ByCertificate Kind = "certificate"
	ByJWT         Kind = "jwt"
	ByTokenReview Kind = "token-review"
)

// Identity is a verified caller: a SPIFFE ID, a Kubernetes service account, or both.
// Empty fields were not attested.
type Identity struct {
	Kind Kind
	// SPIFFEID is valid for [pki.ParseSPIFFEID].
	SPIFFEID string
	// Namespace and ServiceAccount are both set or both empty. They match the SPIFFE ID
	// if its path is /ns/<namespace>/sa/<service account>.
	Namespace, ServiceAccount string
	// Issuer attests the identity: a trust domain for a certificate, the claim iss for
	// a JWT, the API server's URL for a TokenReview.
	Issuer string
	// Cluster is the one whose API server reviewed the token. Empty for certificates.
	Cluster string
	// Pod, PodUID, Node and ServiceAccountUID are what Kubernetes bound the token to.
	Pod, PodUID, Node, ServiceAccountUID string
	// Expiry is when the credential expires; zero if it does not say.
	Expiry time.Time
}

// String returns the SPIFFE ID, or the service account's Kubernetes user name.
func (id Identity) String() string {
	switch {
	case id.SPIFFEID != "":
		return id.SPIFFEID
	case id.Namespace != "":
		return subjectPrefix + id.Namespace + ":" + id.ServiceAccount
	}
	return ""
}

// OfSPIFFEID returns the identity with that SPIFFE ID and the service account its path
// may name.
func OfSPIFFEID(text string) (Identity, error) {
	parsed, err := pki.ParseSPIFFEID(text)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{SPIFFEID: text}
	if path := strings.Split(parsed.Path, "/"); len(path) == 5 && path[1] == "ns" && path[3] == "sa" && areServiceAccount(path[2], path[4]) {
		id.Namespace, id.ServiceAccount = path[2], path[4]
	}
	return id, nil
}
