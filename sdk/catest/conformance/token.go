package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func tokenChecks() []Check {
	granted := []string{"TOKEN-01"}
	return []Check{
		{"TOKEN-01", TokenExchange, "It exchanges the kit's subject token.", "That is the purpose of the ability.", []string{"SET-06", "META-08"}, tokenIsExchanged},
		{"TOKEN-02", TokenExchange, "The new token expires in the future, or has no stated expiry.", "An expired token is exchanged again immediately, forever.", granted, tokenIsFresh},
		{"TOKEN-03", TokenExchange, "The type of the new token is a URI, or not stated.", "RFC 8693, section 3.", granted, tokenKindIsURI},
		{"TOKEN-04", TokenExchange, "The new token is printable and has no spaces.", "It is sent in a header.", granted, tokenIsPrintable},
		{"TOKEN-05", TokenExchange, "For an invalid subject token it returns unauthenticated, denied or invalid.", "The host then reads the token again, which may have been replaced.", []string{"SET-06", "META-08"}, subjectIsRefused},
		{"TOKEN-06", TokenExchange, "No refusal quotes the subject token.", "Errors are logged, shown and passed on.", []string{"SET-06", "META-08"}, exchangeWithoutToken},
		{"TOKEN-07", TokenExchange, "Without settings it returns not configured.", "The host then sends the settings.", nil, exchangeUnconfigured},
		{"TOKEN-08", TokenExchange, "64 concurrent exchanges all succeed.", "An agent on a node serves many workloads.", granted, exchangesAtOnce},
	}
}

func (s *Session) exchange(ctx context.Context) (ca.ExchangedToken, error) {
	i, err := s.having(ctx, wire.TokenExchanger)
	if err != nil {
		return ca.ExchangedToken{}, err
	}
	if s.Kit.Exchange.SubjectToken == "" {
		return ca.ExchangedToken{}, needs("exchange.subject_token_file", "")
	}
	return s.exchangeBy(ctx, i)
}

func (s *Session) exchangeBy(ctx context.Context, i *Instance) (ca.ExchangedToken, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	token, err := i.ExchangeToken(ctx, s.Kit.Exchange)
	if err == nil && token.AccessToken == "" {
		return token, errors.New("the new token is empty")
	}
	return token, err
}

func tokenIsExchanged(ctx context.Context, s *Session) error {
	_, err := s.exchange(ctx)
	return err
}

func tokenIsFresh(ctx context.Context, s *Session) error {
	token, err := s.exchange(ctx)
	if err == nil && !token.Expiry.IsZero() && !token.Expiry.After(time.Now()) {
		return fmt.Errorf("it ended %s", clock.Stamp(token.Expiry))
	}
	return err
}

func tokenKindIsURI(ctx context.Context, s *Session) error {
	token, err := s.exchange(ctx)
	if err != nil || token.IssuedType == "" {
		return err
	}
	if kind, err := url.Parse(token.IssuedType); err != nil || kind.Scheme == "" {
		return fmt.Errorf("it is %q", token.IssuedType)
	}
	return nil
}

func tokenIsPrintable(ctx context.Context, s *Session) error {
	token, err := s.exchange(ctx)
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if err == nil && strings.ContainsFunc(token.AccessToken.Reveal(), odd) {
		return errors.New("it has a character that is not")
	}
	return err
}

// refusedExchange exchanges a token that must be refused.
func (s *Session) refusedExchange(ctx context.Context) error {
	i, err := s.having(ctx, wire.TokenExchanger)
	if err != nil {
		return err
	}
	if s.Kit.RefusedSubjectToken == "" {
		return needs("refused_subject_token_file", "")
	}
	req := s.Kit.Exchange
	req.SubjectToken = s.Kit.RefusedSubjectToken
	ctx, cancel := s.call(ctx)
	defer cancel()
	_, err = i.ExchangeToken(ctx, req)
	return err
}

func subjectIsRefused(ctx context.Context, s *Session) error {
	return mustBe(s.refusedExchange(ctx), ca.Unauthenticated, ca.Denied, ca.Invalid)
}

func exchangeWithoutToken(ctx context.Context, s *Session) error {
	err := s.refusedExchange(ctx)
	if _, unrun := errors.AsType[notRunError](err); unrun {
		return err
	}
	if s.Shows(fmt.Sprint(err)) {
		return errors.New("the token is in the error's text")
	}
	return nil
}

func exchangeUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.TokenExchanger)
}

func exchangesAtOnce(ctx context.Context, s *Session) error {
	if _, err := s.exchange(ctx); err != nil {
		return err
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	return together(ctx, s.crowd, func() (sending, error) {
		return func(ctx context.Context) error { _, err := s.exchangeBy(ctx, i); return err }, nil
	})
}
