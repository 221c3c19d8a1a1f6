package federation

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// usable drops the roots of a bundle document that cannot be used, and returns why: go-spiffe refuses
// the whole document for one that Go cannot read, so that a new root would not arrive, and takes
// keys of any size. Anything but a document stays, for go-spiffe to refuse.
func usable(content []byte) (rest []byte, useless []error) {
	var document map[string]json.RawMessage
	var keys []json.RawMessage
	kept := []json.RawMessage{} // not null, which go-spiffe refuses
	if json.Unmarshal(content, &document) != nil || json.Unmarshal(document["keys"], &keys) != nil {
		return content, nil
	}
	for i, key := range keys {
		if err := rootFault(key); err != nil {
			useless = append(useless, fmt.Errorf("key %d of the bundle %w", i+1, err))
			continue
		}
		kept = append(kept, key)
	}
	if len(useless) == 0 {
		return content, nil
	}
	var err error
	if document["keys"], err = json.Marshal(kept); err == nil {
		rest, err = json.Marshal(document)
	}
	if err != nil {
		return content, useless
	}
	return rest, useless
}

// rootFault returns why the certificate of a JWK cannot be used; nil if it has none.
func rootFault(key json.RawMessage) error {
	var fields struct {
		Use   string   `json:"use"`
		Chain []string `json:"x5c"`
	}
	_ = json.Unmarshal(key, &fields) // go-spiffe reports why it is malformed
	if fields.Use != "x509-svid" || len(fields.Chain) != 1 {
		return nil
	}
	der, err := base64.StdEncoding.DecodeString(fields.Chain[0])
	if err != nil {
		return pki.ErrMalformed
	}
	_, err = pki.ParseCertificate(der)
	return err
}
