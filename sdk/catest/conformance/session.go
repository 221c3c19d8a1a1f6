package conformance

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/text"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Session is one run against a [Subject] and the state its checks share. Checks call
// its methods one at a time; [Session.Close] releases what was opened.
type Session struct {
	Kit     Kit
	Subject Subject

	secrets  []ca.Token // among the settings; see Resolve
	outcomes map[string]Result
	unopened string // the check that first could open no instance
	closed   error  // why it could not
	crowd    int    // concurrent calls
	stalls   func() (stood func() bool)
	held     []*Instance // for many checks: the configured one and the blank one
	opened   []*Instance // for one check
	readied  func() (*Instance, error)
	blank    func() (*Instance, error) // without settings; checks must not configure it
	reply    func() (*reply, error)
	facts    func() ca.Facts // that the provider states; none if it returns no metadata
}

// NewSession applies the kit's defaults; it opens nothing yet.
func NewSession(kit Kit, subject Subject) *Session {
	s := &Session{Kit: kit.withDefaults(), Subject: subject, outcomes: map[string]Result{}, crowd: crowd, stalls: stalls}
	s.share()
	return s
}

// share has the shared instances opened when a check first needs them.
func (s *Session) share() {
	s.readied = sync.OnceValues(func() (*Instance, error) { return s.configured(context.Background(), &s.held) })
	s.blank = sync.OnceValues(func() (*Instance, error) { return s.open(context.Background(), &s.held) })
	s.reply = sync.OnceValues(func() (*reply, error) { return s.firstReply(context.Background()) })
	s.facts = sync.OnceValue(func() ca.Facts {
		m, _ := described(context.Background(), s) // another check covers the error
		return m.Facts
	})
}

// Close ends everything still open.
func (s *Session) Close() {
	s.closeAll(&s.opened)
	s.closeAll(&s.held)
}

func (s *Session) closeAll(list *[]*Instance) {
	for _, i := range *list {
		i.Stop()
	}
	*list = nil
}

// Fresh returns an instance without settings. It ends with the check.
func (s *Session) Fresh(ctx context.Context) (*Instance, error) { return s.open(ctx, &s.opened) }

// FreshReady returns a new instance for one check, with the kit's settings.
func (s *Session) FreshReady(ctx context.Context) (*Instance, error) {
	return s.configured(ctx, &s.opened)
}

// Ready returns the instance that all checks share, with the kit's settings. A separate
// check covers a provider that rejects them.
func (s *Session) Ready() (*Instance, error) {
	i, err := s.readied()
	if err != nil {
		return nil, NotRun("SET-06: %w", err)
	}
	return i, nil
}

func (s *Session) open(ctx context.Context, list *[]*Instance) (*Instance, error) {
	if s.unopened == first {
		return nil, openError{s.closed} // each further start may take as long as that one
	}
	i, err := s.Subject.Open(ctx)
	if err != nil {
		return nil, openError{fmt.Errorf("it cannot be opened: %w", err)}
	}
	*list = append(*list, i)
	return i, nil
}

func (s *Session) configured(ctx context.Context, list *[]*Instance) (*Instance, error) {
	i, err := s.open(ctx, list)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	return i, Configure(ctx, i, s.Kit.Settings)
}

// Configure sends settings and, like a host, waits until the provider is ready.
func Configure(ctx context.Context, p wire.Provider, settings map[string]any) error {
	if err := p.Configure(ctx, settings); err != nil {
		return fmt.Errorf("it refuses the settings: %w", err)
	}
	for {
		err := p.Ready(ctx)
		if !errors.Is(err, ca.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(slice):
		case <-ctx.Done():
			return err
		}
	}
}

// call limits the duration of one call.
func (s *Session) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(s.Kit.CallTimeout))
}

// metadata returns the provider's metadata, unchecked.
func (s *Session) metadata(ctx context.Context, i *Instance) (wire.Metadata, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	if i.Conn == nil {
		return i.Metadata(ctx)
	}
	out, err := providerv1.NewProviderClient(i.Conn).GetMetadata(ctx, &providerv1.GetMetadataRequest{})
	m := wire.Metadata{Name: out.GetName(), Version: out.GetVersion(), SettingsSchema: out.GetSettingsSchema(), Facts: wire.FactsFromProto(out)}
	for _, a := range out.GetAbilities() {
		m.Abilities = append(m.Abilities, wire.Ability(a))
	}
	return m, err
}

// having returns the shared instance if it declares an ability. If a token is required,
// one has been sent by then: the provider may need it to fetch roots.
func (s *Session) having(ctx context.Context, ability wire.Ability) (*Instance, error) {
	i, err := s.Ready()
	if err != nil {
		return nil, err
	}
	m, err := s.metadata(ctx, i)
	if err == nil && !m.Has(ability) {
		return nil, NotRun("the provider has no ability %q", ability)
	}
	if s.Kit.off(ability) {
		return nil, NotRun("by the kit, its settings turn %q off", ability)
	}
	if s.tokenRequired() {
		_, _ = s.reply() // another check covers whether it signs
	}
	return i, err
}

// fixedLifetime, tokenRequired and nameCheck are what the kit says, and else what the provider
// states in its metadata.
func (s *Session) fixedLifetime() bool { return s.Kit.FixedLifetime || s.facts().FixedLifetime }

func (s *Session) tokenRequired() bool { return s.Kit.TokenRequired || s.facts().NeedsToken }

func (s *Session) nameCheck() pki.NameCheck {
	return map[string]pki.NameCheck{"trust-domain": pki.TrustDomainName, "any": pki.AnyName}[cmp.Or(s.Kit.NameCheck, s.facts().NameMatch.String())]
}

// newKey generates a key for one request; slow key types are generated only once.
func newKey(kind pki.KeyType) (crypto.Signer, error) {
	if kind == pki.RSA2048 || kind == pki.RSA3072 || kind == pki.RSA4096 {
		return slowKeys(kind)
	}
	return pki.GenerateKey(kind)
}

//nolint:gochecknoglobals // a key of a test, that takes a while to make
var rsaKeys sync.Map

func slowKeys(kind pki.KeyType) (crypto.Signer, error) {
	once, _ := rsaKeys.LoadOrStore(kind, sync.OnceValues(func() (crypto.Signer, error) { return pki.GenerateKey(kind) }))
	return once.(func() (crypto.Signer, error))()
}

// Request returns a request for names with a new key, using the kit's token and TTL.
func (s *Session) Request(names Names, kind pki.KeyType) (ca.SignRequest, crypto.PublicKey, error) {
	key, err := newKey(kind)
	if err != nil {
		return ca.SignRequest{}, nil, err
	}
	id, err := pki.NewIdentity(names.SPIFFEID, names.DNSNames, names.IPAddresses)
	if err != nil {
		return ca.SignRequest{}, nil, fmt.Errorf("the kit's names: %w", err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		return ca.SignRequest{}, nil, err
	}
	return s.asking(csr, id), key.Public(), nil
}

func (s *Session) asking(csr []byte, id pki.Identity) ca.SignRequest {
	req := ca.SignRequest{
		ID: uuid.NewString(), CSR: csr, DNSNames: id.DNSNames, IPAddresses: append([]netip.Addr(nil), id.IPAddresses...),
		TTL: time.Duration(s.Kit.TTL), Token: s.Kit.Token,
	}
	if id.SPIFFEID != nil {
		req.SubjectID = id.SPIFFEID.String()
	}
	return req
}

// good returns a request that must be signed.
func (s *Session) good() (ca.SignRequest, crypto.PublicKey, error) {
	return s.Request(s.Kit.Identity, pki.ECDSAP256)
}

// SignOnce has a good request signed and checks only the key.
func (s *Session) SignOnce(ctx context.Context, client ca.Client) error {
	send, err := s.signing(client)
	if err != nil {
		return err
	}
	return send(ctx)
}

// signing prepares a good request and returns the call that sends it.
func (s *Session) signing(client ca.Client) (sending, error) {
	req, key, err := s.good()
	return func(ctx context.Context) error {
		ctx, cancel := s.call(ctx)
		defer cancel()
		cert, err := client.CSRSign(ctx, req)
		if err != nil {
			return fmt.Errorf("a good request: %w", err)
		}
		return hasKey(cert, key)
	}, err
}

func hasKey(cert ca.Certificate, key crypto.PublicKey) error {
	certs, err := pki.ParseCertificates(cert.Chain)
	if err != nil {
		return fmt.Errorf("the chain: %w", err)
	}
	if !pki.SameKey(key, certs[0].PublicKey) {
		return fmt.Errorf("the first certificate (%.256q) has another key than the request", certs[0].Subject.String())
	}
	return nil
}

// clean sanitizes output and removes the kit's tokens and secret settings.
func (s *Session) clean(seen string) string {
	return text.Redact(seen, s.tokens()...)
}
