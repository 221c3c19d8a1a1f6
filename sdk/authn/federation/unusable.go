package federation

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	rootUse = "x509-svid" // of a JWK with a root
	// maxKeyCount bounds the keys that are read one by one. Fewer can be used.
	maxKeyCount = 2 * (maxRootCount + maxKeysOfTokens)
)

// usable drops the keys of a bundle document that cannot be used, and returns why; lost is why the first
// root among them cannot be used. A client must ignore keys of unknown types (SPIFFE Trust Domain and
// Bundle, section 4.1.3), but go-spiffe refuses the whole document for one, so that a new root would
// not arrive, and it takes keys of any size. A document that is malformed or has very many keys is left for go-spiffe.
func usable(td spiffeid.TrustDomain, content []byte) (rest []byte, useless []error, lost error) {
	document, keys := decode(content)
	if len(keys) > maxKeyCount {
		return content, nil, nil
	}
	kept := []json.RawMessage{} // not null, which go-spiffe refuses
	for i, key := range keys {
		isRoot, err := keyFault(td, key)
		if err == nil {
			kept = append(kept, key)
			continue
		}
		err = fmt.Errorf("key %d of the bundle %w", i+1, err)
		if useless = append(useless, err); isRoot && lost == nil {
			lost = err
		}
	}
	if len(useless) == 0 {
		return content, nil, nil
	}
	var err error
	if document["keys"], err = json.Marshal(kept); err == nil {
		rest, err = json.Marshal(document)
	}
	if err != nil {
		return content, useless, lost
	}
	return rest, useless, lost
}

// decode returns the members of a bundle document, and its keys; none of anything else.
func decode(content []byte) (document map[string]json.RawMessage, keys []json.RawMessage) {
	if json.Unmarshal(content, &document) != nil || json.Unmarshal(document["keys"], &keys) != nil {
		return nil, nil
	}
	return document, keys
}

// keyFault returns why a JWK cannot be used; isRoot reports whether it is meant to be a root.
func keyFault(td spiffeid.TrustDomain, key json.RawMessage) (isRoot bool, err error) {
	var fields struct {
		Use   string   `json:"use"`
		Chain []string `json:"x5c"`
	}
	malformed := json.Unmarshal(key, &fields) != nil
	isRoot = malformed || fields.Use == rootUse
	if isRoot && len(fields.Chain) == 1 {
		if err := rootFault(fields.Chain[0]); err != nil {
			return isRoot, err
		}
	}
	alone, err := json.Marshal(map[string]any{"keys": []json.RawMessage{key}})
	if err == nil {
		_, err = spiffebundle.Parse(td, alone)
	}
	if err != nil {
		return isRoot, fmt.Errorf("is malformed or of an unknown type: %w", err)
	}
	return isRoot, nil
}

// rootFault returns why a certificate of a JWK cannot be used.
func rootFault(encoded string) error {
	der, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return pki.ErrMalformed
	}
	_, err = pki.ParseCertificate(der)
	return err
}
