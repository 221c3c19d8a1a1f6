package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func metadataChecks() []Check {
	return []Check{
		{"META-01", Behaviour, "A provider without settings returns its metadata within a second.", "`provider list` and `inspect` ask before there are settings, and must not wait for a CA.", nil, metadataAtOnce},
		{"META-02", Behaviour, "Its name is 1 to 63 of a-z, 0-9 and -, and does not begin with -.", "The name is part of the binary's file name and of configurations.", []string{"META-01"}, nameIsWellFormed},
		{"META-03", Behaviour, "Its version is 1 to 64 printable bytes.", "People compare it in tables and logs.", []string{"META-01"}, versionIsWellFormed},
		{"META-04", Behaviour, "It has the ability certificate-authority.", "Without it, a provider cannot sign anything.", []string{"META-01"}, canSign},
		{"META-05", Behaviour, "It lists each ability once, and none is 0.", "Such a list comes from generated code that was never completed.", []string{"META-01"}, abilitiesAreDistinct},
		{"META-06", Behaviour, "Its metadata does not depend on its settings: it declares each ability that some settings turn on, and states what holds for all.", "The host reads it once, before it sends settings.", []string{"META-01"}, metadataStays},
		{"META-07", Behaviour, "Calls to an ability that it does not declare, or that its settings turn off, return unimplemented.", "The host asks again after 10 minutes only; after any other error it retries within a minute.", []string{"META-01"}, undeclaredIsUnimplemented},
		{"META-08", Behaviour, "It implements each ability that it declares and that its settings do not turn off.", "The host relies on it, and would find out only when it needs it.", []string{"META-01"}, declaredIsThere},
	}
}

func metadataAtOnce(ctx context.Context, s *Session) error {
	return prompt(func() error { return s.describesItself(ctx) })
}

func (s *Session) describesItself(ctx context.Context) error {
	i, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := s.metadata(ctx, i); err != nil {
		return fmt.Errorf("after %s: %w", time.Since(begin).Round(time.Millisecond), err)
	}
	took := time.Since(begin)
	_ = i.Ready(ctx) // the control: on a busy machine it takes long, too
	if control := time.Since(begin) - took; took > time.Second+4*control {
		return fmt.Errorf("it took %s", took.Round(time.Millisecond))
	}
	return nil
}

// described returns the metadata of an instance without settings.
func described(ctx context.Context, s *Session) (wire.Metadata, error) {
	i, err := s.blank()
	if err != nil {
		return wire.Metadata{}, err
	}
	return s.metadata(ctx, i)
}

func nameIsWellFormed(ctx context.Context, s *Session) error {
	m, err := described(ctx, s)
	if err == nil && !wire.ValidName(m.Name) {
		return fmt.Errorf("it calls itself %q", m.Name)
	}
	return err
}

func versionIsWellFormed(ctx context.Context, s *Session) error {
	m, err := described(ctx, s)
	if err != nil {
		return err
	}
	// Other checks cover other faults in the metadata.
	return wire.Metadata{Name: "x", Version: m.Version, Abilities: []wire.Ability{wire.CertificateAuthority}}.Check()
}

func canSign(ctx context.Context, s *Session) error {
	m, err := described(ctx, s)
	if err == nil && !m.Has(wire.CertificateAuthority) {
		return fmt.Errorf("it declares %v", m.Abilities)
	}
	return err
}

func abilitiesAreDistinct(ctx context.Context, s *Session) error {
	m, err := described(ctx, s)
	seen := map[wire.Ability]bool{0: true}
	for _, a := range m.Abilities {
		if seen[a] {
			return fmt.Errorf("it declares %v", m.Abilities)
		}
		seen[a] = true
	}
	return err
}

func metadataStays(ctx context.Context, s *Session) error {
	before, err := described(ctx, s)
	if err != nil {
		return err
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	after, err := s.metadata(ctx, i)
	if err == nil && !reflect.DeepEqual(before, after) {
		return fmt.Errorf("without settings it is %s %s %v %+v, with settings %s %s %v %+v",
			before.Name, before.Version, before.Abilities, before.Facts, after.Name, after.Version, after.Abilities, after.Facts)
	}
	return err
}

// asked calls an ability and returns after its first result.
func asked(ctx context.Context, s *Session, i *Instance, ability wire.Ability) error {
	ctx, cancel := s.call(ctx)
	defer cancel()
	var err error
	switch ability {
	case wire.RootSource:
		_, err = i.Roots(ctx)
	case wire.RootWatcher:
		enough := errors.New("enough")
		err = i.WatchRoots(ctx, func([]byte) error { return enough })
	case wire.TokenExchanger:
		_, err = i.ExchangeToken(ctx, ca.TokenRequest{SubjectToken: madeUp})
	case wire.NamesFromRequest:
		err = i.CertifiesNames(ctx)
	case wire.RenewalInfo:
		_, err = i.RenewalInfo(ctx, []byte(madeUpLeaf))
	case wire.RevocationSource:
		_, err = i.Revocations(ctx)
	case wire.JWTSVID:
		_, err = i.SignJWT(ctx, s.jwtRequest("spiffe://"+strangeName+"/nobody"))
	case wire.WITSVID:
		_, err = i.SignWIT(ctx, s.witRequest("spiffe://"+strangeName+"/nobody"))
	}
	return err
}

func undeclaredIsUnimplemented(ctx context.Context, s *Session) error {
	return eachAbility(ctx, s, false, func(i *Instance, ability wire.Ability) error {
		if err := asked(ctx, s, i, ability); !errors.Is(err, ca.ErrUnimplemented) {
			return fmt.Errorf("it does not declare %q, or its settings turn that off, and it answers %w", ability, orNone(err))
		}
		return nil
	})
}

func declaredIsThere(ctx context.Context, s *Session) error {
	return eachAbility(ctx, s, true, func(i *Instance, ability wire.Ability) error {
		ask := asked
		if ability == wire.RootWatcher {
			ask = watchIsThere // it may have nothing to send yet
		}
		if err := ask(ctx, s, i, ability); errors.Is(err, ca.ErrUnimplemented) {
			return fmt.Errorf("it declares %q, which answers %w; if the settings turn it off, write abilities_off: [%[1]s] in the kit", ability, err)
		}
		return nil
	})
}

// watchIsThere returns the error of a watch that ends immediately.
func watchIsThere(ctx context.Context, s *Session, i *Instance, _ wire.Ability) error {
	w := s.watch(ctx, i)
	defer w.close()
	control := func() { _, _ = s.metadata(ctx, i) } // another check judges the answer
	if inTime(quiet, control, func() bool { return len(w.told) > 0 || w.ended() }) && w.ended() {
		return w.err
	}
	return nil
}

// eachAbility judges every ability that is declared and not turned off, or every other one.
func eachAbility(ctx context.Context, s *Session, on bool, judge func(*Instance, wire.Ability) error) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	m, err := s.metadata(ctx, i)
	if err != nil {
		return err
	}
	for _, ability := range []wire.Ability{wire.RootSource, wire.RootWatcher, wire.TokenExchanger, wire.NamesFromRequest, wire.RenewalInfo, wire.RevocationSource, wire.JWTSVID, wire.WITSVID} {
		if (m.Has(ability) && !s.Kit.off(ability)) != on {
			continue
		}
		if ability == wire.NamesFromRequest && s.Kit.off(ability) {
			continue // it has no call of its own, and the metadata know no settings
		}
		if err := judge(i, ability); err != nil {
			return err
		}
	}
	return nil
}

// orNone replaces a nil error for printing.
func orNone(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}
