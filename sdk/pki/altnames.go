package pki

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
)

// nameForms are the kinds of names that crypto/x509 does not show (RFC 5280, section 4.2.1.6).
var nameForms = map[int]string{0: "otherName", 3: "x400Address", 4: "directoryName", 5: "ediPartyName", 8: "registeredID"}

// altNames returns the subject alternative names as they are encoded.
func altNames(extensions []pkix.Extension) (names []asn1.RawValue, err error) {
	for _, extension := range extensions {
		if !extension.Id.Equal(oidSubjectAltName) {
			continue
		}
		rest, err := asn1.Unmarshal(extension.Value, &names)
		if err != nil || len(rest) > 0 {
			return nil, errors.New("its subject alternative names are malformed")
		}
	}
	return names, nil
}

// checkNameForms refuses kinds of names that an [Identity] cannot have: peers may read them.
func checkNameForms(extensions []pkix.Extension) error {
	names, err := altNames(extensions)
	if err != nil {
		return err
	}
	for _, name := range names {
		if form, ok := nameForms[name.Tag]; ok {
			return fmt.Errorf("it names a %s; only a SPIFFE ID, DNS names and IP addresses are allowed", form)
		}
	}
	return nil
}

// uriTexts returns the URIs as peers compare them, byte for byte: url.Parse drops an empty
// fragment and lowers the scheme's letters.
func uriTexts(extensions []pkix.Extension, parsed []*url.URL) (texts []string) {
	names, err := altNames(extensions)
	if err != nil || names == nil { // not from DER
		for _, uri := range parsed {
			texts = append(texts, uri.String())
		}
		return texts
	}
	for _, name := range names {
		if name.Tag == tagURI {
			texts = append(texts, string(name.Bytes))
		}
	}
	return texts
}
