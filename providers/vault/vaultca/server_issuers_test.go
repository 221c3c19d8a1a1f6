package vaultca

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// reply has the root in its chain, as the engine's has when the root is in the mount.
func reply(certs []*x509.Certificate) map[string]any {
	texts := texts(certs)
	return map[string]any{"certificate": texts[0], "issuing_ca": texts[1], "ca_chain": texts[1:], "serial_number": "1f:2e"}
}

func certificates(text []byte) []*x509.Certificate {
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		panic(err)
	}
	return certs
}

func texts(certs []*x509.Certificate) []string {
	var all []string
	for _, cert := range certs {
		all = append(all, string(pki.EncodeCertificates([]*x509.Certificate{cert})))
	}
	return all
}

func (v *vault) tellIssuers(w http.ResponseWriter, r *http.Request, path string) {
	if path == "pki/issuers" && r.URL.Query().Get("list") == "true" {
		var keys []string
		for i := range v.issuers {
			keys = append(keys, fmt.Sprintf("issuer-%d", i))
		}
		answer(w, map[string]any{"data": map[string]any{"keys": keys}})
		return
	}
	if strings.HasSuffix(path, "/crl/pem") {
		_, _ = w.Write(v.lists[strings.TrimSuffix(strings.TrimPrefix(path, "pki/issuer/"), "/crl/pem")]) // none: an empty answer
		return
	}
	var i int
	if _, err := fmt.Sscanf(path, "pki/issuer/issuer-%d/json", &i); err != nil || i >= len(v.issuers) {
		refuse(w, http.StatusInternalServerError, "unable to find PKI issuer")
		return
	}
	texts := texts(v.issuers[i])
	answer(w, map[string]any{"data": map[string]any{"certificate": texts[0], "ca_chain": texts}})
}
