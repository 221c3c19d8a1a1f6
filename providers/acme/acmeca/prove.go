package acmeca

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// cleanTimeout bounds the removal of answers when the provider is being closed. Else each
// answerer has bounds of its own.
const cleanTimeout = 30 * time.Second

// authorization is what the server wants proved (RFC 8555, section 7.1.4).
type authorization struct {
	Identifier name            `json:"identifier"`
	Status     string          `json:"status"`
	Wildcard   bool            `json:"wildcard"`
	Challenges []challengeSpec `json:"challenges"`
	url        string
}

type challengeSpec struct {
	Type   string   `json:"type"`
	URL    string   `json:"url"`
	Status string   `json:"status"`
	Token  string   `json:"token"`
	Error  *problem `json:"error"`
}

// challenge is what an answerer has to answer.
type challenge struct {
	name  name // without "*."
	token string
	proof string // the key authorization (section 8.1)
}

// answerer answers challenges of one type.
type answerer interface {
	// present makes the answer available. clean takes it away, or what an error left of it; it is
	// nil if there is nothing.
	present(ctx context.Context, c challenge) (clean func(context.Context) error, err error)
	// settle waits until the CA can see all answers.
	settle(ctx context.Context) error
}

// token is at least 128 bits in base64url. It becomes part of a path and of a file's name.
var token = regexp.MustCompile(`^[A-Za-z0-9_-]{22,256}$`)

// prove answers the challenges of all names that are not proved yet, and waits for the
// server's verdicts.
func (o *order) prove(ctx context.Context) error {
	open, err := o.open(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	for _, one := range open {
		clean, err := o.present(ctx, one)
		if clean != nil {
			defer o.cleaning.Go(func() { o.clean(one, clean) }) // the order's time is too short for a slow one
		}
		if err != nil {
			return err
		}
	}
	if err := o.ca.answers.settle(ctx); err != nil {
		return err
	}
	looking := false
	for _, one := range open {
		status, err := o.trigger(ctx, one)
		if err != nil {
			return err
		}
		looking = looking || status == "pending" || status == "processing"
	}
	// A look before the CA can have seen the proofs (RFC 8555, section 7.5.1) would cost the Retry-After
	// of its reply.
	if looking {
		if err := sleep(ctx, minPause); err != nil {
			return err
		}
	}
	for _, one := range open {
		if err := o.verdict(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// open returns the authorizations that are pending.
func (o *order) open(ctx context.Context) (open []authorization, err error) {
	for _, url := range o.at.Authorizations {
		one, _, err := o.authorization(ctx, url)
		if err != nil {
			return nil, err
		}
		switch one.Status {
		case "valid":
		case "pending":
			open = append(open, one)
		default:
			return nil, one.failed()
		}
	}
	return open, nil
}

// authorization asks for one, which must be for a name of the order.
func (o *order) authorization(ctx context.Context, url string) (one authorization, header http.Header, err error) {
	got, err := o.ca.server.post(ctx, o.as, url, nil)
	if err != nil {
		return one, nil, err
	}
	if err := got.into(o.ca.server.url.Host, &one); err != nil {
		return one, nil, err
	}
	one.url = url
	whole := one.Identifier
	if one.Wildcard {
		whole.Value = wildcard + whole.Value
	}
	for _, wants := range identifiers(o.asked.names) {
		if wants.is(whole) {
			return one, got.header, nil
		}
	}
	return one, nil, ca.Errorf(ca.Internal, "%s wants %.256q proved, which the order does not have", o.ca.server.url.Host, whole.Value)
}

// failed returns why an authorization has come to nothing.
func (a authorization) failed() error {
	for _, c := range a.Challenges {
		if c.Error != nil {
			return failed("the proof of "+a.Identifier.Value, c.Error)
		}
	}
	return failed("the proof of "+a.Identifier.Value, nil)
}

// pick returns the challenge of the configured type.
func (o *order) pick(one authorization) (challengeSpec, error) {
	var offered []string
	for _, c := range one.Challenges {
		if c.Type == o.ca.settings.challenge() {
			if !token.MatchString(c.Token) {
				return c, ca.Errorf(ca.Internal, "%s returned an invalid %s token", o.ca.server.url.Host, c.Type)
			}
			return c, nil
		}
		offered = append(offered, c.Type)
	}
	return challengeSpec{}, ca.Errorf(ca.Invalid, "challenge is %s: the CA offers %.256q for %s", o.ca.settings.challenge(), strings.Join(offered, ", "), one.Identifier.Value)
}

func (o *order) present(ctx context.Context, one authorization) (func(context.Context) error, error) {
	c, err := o.pick(one)
	if err != nil {
		return nil, err
	}
	print, err := o.as.thumbprint()
	if err != nil {
		return nil, err
	}
	return o.ca.answers.present(ctx, challenge{one.Identifier, c.Token, c.Token + "." + print})
}

// clean takes an answer away, also when the order has ended.
func (o *order) clean(one authorization, clean func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.ca.life))
	defer cancel()
	stop := context.AfterFunc(o.ca.life, func() {
		_ = sleep(ctx, cleanTimeout) // or it is done
		cancel()
	})
	defer stop()
	if err := clean(ctx); err != nil {
		o.ca.log.Warn("the answer to a challenge was not removed", "name", one.Identifier.Value, "error", err)
	}
}

// trigger requests the validation and returns the challenge's status.
func (o *order) trigger(ctx context.Context, one authorization) (status string, err error) {
	c, err := o.pick(one)
	if err != nil || c.Status != "pending" { // the server looks already
		return c.Status, err
	}
	got, err := o.ca.server.post(ctx, o.as, c.URL, struct{}{})
	if err != nil {
		return "", err
	}
	err = got.into(o.ca.server.url.Host, &c) // without a reply, the server may not have got the request
	return c.Status, err
}

// verdict waits for what the server has seen.
func (o *order) verdict(ctx context.Context, one authorization) error {
	for looks := 1; ; looks++ {
		now, header, err := o.authorization(ctx, one.url)
		if err != nil {
			return err
		}
		switch now.Status {
		case "valid":
			return nil
		case "pending":
		default:
			return now.failed()
		}
		if err := pause(ctx, header, looks); err != nil {
			return err
		}
	}
}
