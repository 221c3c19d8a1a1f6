package provider

import (
	"errors"
	"io"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// abilitiesOf returns the abilities of a type by its methods. An interface has its own methods
// only, whatever it holds.
func abilitiesOf(t reflect.Type) []wire.Ability {
	abilities := []wire.Ability{wire.CertificateAuthority}
	for _, further := range []struct {
		ability wire.Ability
		by      reflect.Type
	}{
		{wire.RootSource, reflect.TypeFor[ca.RootSource]()},
		{wire.RootWatcher, reflect.TypeFor[ca.RootWatcher]()},
		{wire.TokenExchanger, reflect.TypeFor[ca.TokenExchanger]()},
		{wire.NamesFromRequest, reflect.TypeFor[ca.NameCertifier]()},
		{wire.RenewalInfo, reflect.TypeFor[ca.RenewalAdvisor]()},
		{wire.RevocationSource, reflect.TypeFor[ca.RevocationSource]()},
		{wire.JWTSVID, reflect.TypeFor[ca.JWTSigner]()},
		{wire.WITSVID, reflect.TypeFor[ca.WITSigner]()},
	} {
		if t.Implements(further.by) {
			abilities = append(abilities, further.ability)
		}
	}
	return abilities
}

// opened refuses a client that can do more than the type of open's result: the host would never
// ask for it.
func opened(client ca.Client, declared []wire.Ability) (ca.Client, error) {
	if client == nil {
		return nil, nil
	}
	for _, ability := range abilitiesOf(reflect.TypeOf(client)) {
		if slices.Contains(declared, ability) {
			continue
		}
		err := ca.Errorf(ca.Internal, "open returns an interface, which hides that %T has the ability %q: have it return %[1]T", client, ability)
		if closer, ok := client.(io.Closer); ok {
			return nil, errors.Join(err, closer.Close())
		}
		return nil, err
	}
	return client, nil
}
