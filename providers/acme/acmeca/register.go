package acmeca

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// newAccountRequest is RFC 8555, section 7.3.
type newAccountRequest struct {
	Contact  []string        `json:"contact,omitempty"`
	Agreed   bool            `json:"termsOfServiceAgreed,omitempty"`
	Existing bool            `json:"onlyReturnExisting,omitempty"`
	EAB      json.RawMessage `json:"externalAccountBinding,omitempty"`
}

// register returns the URL of a key's account. It makes one unless only an existing one is
// asked for: a server answers both alike if there is one.
func (a *account) register(ctx context.Context, key crypto.Signer, existing bool) (string, error) {
	dir, err := a.server.directory(ctx)
	if err != nil {
		return "", err
	}
	request := newAccountRequest{Existing: existing}
	if !existing {
		if request, err = a.request(dir, key); err != nil {
			return "", err
		}
	}
	got, err := a.server.post(ctx, signer{key: key}, dir.NewAccount, request)
	if err != nil {
		return "", err
	}
	return a.server.at(got.header.Get("Location"))
}

func (a *account) request(dir directory, key crypto.Signer) (newAccountRequest, error) {
	s := a.settings
	if err := cmp.Or(s.fits(dir), s.binds(dir)); err != nil {
		return newAccountRequest{}, err
	}
	request := newAccountRequest{Agreed: s.AcceptTerms}
	if s.Contact != "" {
		request.Contact = []string{"mailto:" + s.Contact}
	}
	var err error
	if s.EAB.KeyID != "" {
		request.EAB, err = s.EAB.bind(key.Public(), dir.NewAccount)
	}
	return request, err
}

// binds checks that there is an external binding for a new account, if the server demands one.
func (s Settings) binds(dir directory) error {
	if dir.Meta.EAB && s.EAB.KeyID == "" {
		return ca.Errorf(ca.Invalid, "eab is not set: the CA opens accounts for its customers only, and gives them a key_id and a mac_key")
	}
	return nil
}

// fits checks the settings against what the server's directory demands of each order.
func (s Settings) fits(dir directory) error {
	if dir.Meta.Terms != "" && !s.AcceptTerms {
		return ca.Errorf(ca.Invalid, "accept_terms is false: the CA wants you to agree to %.256q", dir.Meta.Terms)
	}
	if _, ok := dir.Meta.Profiles[s.Profile]; s.Profile != "" && !ok {
		return ca.Errorf(ca.Invalid, "profile is %.256q: the CA has %s", s.Profile, provider.CleanText(listed(dir.Meta.Profiles)))
	}
	return nil
}

// bind signs the account's key with the MAC key (RFC 8555, section 7.3.4).
func (b EAB) bind(key crypto.PublicKey, url string) (json.RawMessage, error) {
	mac, err := b.mac()
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "eab.mac_key is not base64url")
	}
	public, err := json.Marshal(jose.JSONWebKey{Key: key})
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "encode the account's key: %w", err)
	}
	opts := (&jose.SignerOptions{}).WithHeader("url", url).WithHeader("kid", b.KeyID)
	return signed(jose.SigningKey{Algorithm: jose.HS256, Key: mac}, opts, public)
}
