package secrets

import "errors"

// pairLayouts lists the data keys of a certificate and its private key, in order of
// preference; caLayouts those of a CA and its revocation lists.
var (
	pairLayouts = []struct{ chain, key, staple string }{
		{"cert", "key", ""},
		{"tls.crt", "tls.key", "tls.ocsp-staple"},
	}
	caLayouts = []struct{ ca, crl string }{
		{"cacert", "crl"},
		{"ca.crt", "ca.crl"},
	}
)

// pair reads the certificate and its key.
func (o object) pair() (content, error) {
	for _, layout := range pairLayouts {
		chain, key := o.entry(layout.chain), o.entry(layout.key)
		if len(chain) > 0 && len(key) > 0 {
			return readPair(chain, key, o.entry(layout.staple))
		}
	}
	return content{}, errors.New("it has neither cert and key nor tls.crt and tls.key")
}

// authority reads the CA and nothing that could be a key: only certificates and
// revocation lists are parsed, and then re-encoded.
func (o object) authority() (content, error) {
	for _, layout := range caLayouts {
		if ca := o.entry(layout.ca); len(ca) > 0 {
			return readAuthority(ca, o.entry(layout.crl))
		}
	}
	return content{}, errors.New("it has neither cacert nor ca.crt")
}
