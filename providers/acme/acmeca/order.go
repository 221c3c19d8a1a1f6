package acmeca

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// The time between two looks at an order: from minPause, longer each time, to maxPause. The
	// server's own word counts within these bounds, but never more than a minute.
	minPause = 200 * time.Millisecond
	maxPause = 5 * time.Second
	maxWord  = time.Minute
	// maxAlternates bounds the further chains that are looked at.
	maxAlternates = 4
	// deactivateTimeout bounds what is done about an order that has come to nothing.
	deactivateTimeout = 10 * time.Second
	// afterLie is how long to leave a CA alone that issued something else than asked for: each
	// attempt costs a certificate.
	afterLie = 10 * time.Minute
)

// resource is an order at the server (RFC 8555, section 7.1.3).
type resource struct {
	Status         string   `json:"status"`
	Identifiers    []name   `json:"identifiers"`
	Authorizations []string `json:"authorizations"`
	Finalize       string   `json:"finalize"`
	Certificate    string   `json:"certificate"`
	Error          *problem `json:"error"`
}

// newOrderRequest is RFC 8555, section 7.4, with a profile and RFC 9773's replaces.
type newOrderRequest struct {
	Identifiers []name `json:"identifiers"`
	Profile     string `json:"profile,omitempty"`
	Replaces    string `json:"replaces,omitempty"`
}

// order drives one order. One goroutine uses it; those of cleaning read what does not change.
type order struct {
	ca     *CA
	called string
	job    *job
	asked  asked
	kept   record
	as     signer
	at     resource
	header http.Header // of the last look at it
	looks  int

	cleaning sync.WaitGroup // a repeat of the order may give the same answers
}

// chain drives the order to its end and returns the certificate's chain, which is then kept.
func (o *order) chain(ctx context.Context) (string, error) {
	defer o.cleaning.Wait()
	var err error
	if o.as, err = o.ca.account.signer(ctx); err != nil {
		return "", err
	}
	if err = o.find(ctx); err != nil {
		return "", err
	}
	o.job.placed.Store(true)
	for o.at.Status != "valid" {
		if err = o.step(ctx); err != nil {
			return "", o.given(ctx, err)
		}
	}
	chain, err := o.download(ctx)
	if err != nil {
		return "", o.given(ctx, err)
	}
	o.kept.Chain = chain
	return chain, store(o.ca.orders, o.called, o.kept)
}

// given forgets an order that comes to nothing, so that the next attempt makes another one.
// An error that may pass leaves it: the repeat goes on with it.
func (o *order) given(ctx context.Context, err error) error {
	late := ctx.Err() != nil && o.ca.life.Err() == nil
	if late || o.over(err) {
		o.ca.orders.drop(o.called)
		o.deactivate()
	}
	return err
}

// over reports whether the order has come to nothing by an error.
func (o *order) over(err error) bool {
	switch ca.ReasonFor(err) {
	case ca.Invalid, ca.Denied, ca.Internal:
		return true
	}
	said, _ := errors.AsType[failure](err)
	return said.final || said.kind == "accountDoesNotExist" || o.at.Status == "invalid"
}

// deactivate gives back authorizations that will not be proved any more, as CAs limit how many
// an account may have (RFC 8555, section 7.5.2). Other orders that are running may wait for the same
// authorizations, as some CAs hand out pending ones again: then they are left to expire.
func (o *order) deactivate() {
	if open := o.at.Status == "pending" || o.at.Status == "invalid"; !open || len(o.ca.room) > 1 {
		return
	}
	ctx, cancel := context.WithTimeout(o.ca.life, deactivateTimeout)
	defer cancel()
	for _, url := range o.at.Authorizations {
		one, _, err := o.authorization(ctx, url)
		if err == nil && one.Status == "pending" {
			_, err = o.ca.server.post(ctx, o.as, url, map[string]string{"status": "deactivated"})
		}
		if err != nil { // the server is in trouble, too
			o.ca.log.Debug("a pending authorization was not deactivated", "error", err)
			return
		}
	}
}

// find returns to the kept order, or makes one.
func (o *order) find(ctx context.Context) error {
	if o.kept.Order != "" && o.kept.Account == o.as.kid {
		err := o.look(ctx)
		if err == nil && o.at.Status != "invalid" {
			return nil
		}
		if waits(err) {
			return err
		}
	}
	o.ca.orders.drop(o.called)
	if err := o.ca.orders.tidy(o.ca.now().Add(-keepOrder)); err != nil {
		return err
	}
	return o.make(ctx)
}

// waits reports whether an error may pass.
func waits(err error) bool { return err != nil && ca.ActionFor(err) == ca.Wait }

// make makes an order. If the server has lost the account, or has another key of it after a
// rollover by another process, make opens the account again and retries.
func (o *order) make(ctx context.Context) error {
	err := o.place(ctx)
	if kind := kindOf(err); kind == "accountDoesNotExist" || (kind == "unauthorized" || kind == "malformed") && o.ca.account.changed(o.as) {
		o.ca.account.forget(o.as)
		if o.as, err = o.ca.account.signer(ctx); err != nil {
			return err
		}
		err = o.place(ctx)
	}
	if err != nil {
		return err
	}
	return store(o.ca.orders, o.called, o.kept)
}

func (o *order) place(ctx context.Context) error {
	dir, err := o.ca.server.directory(ctx)
	if err != nil {
		return err
	}
	request := newOrderRequest{Identifiers: identifiers(o.asked.names), Profile: o.ca.settings.Profile}
	if dir.RenewalInfo != "" {
		request.Replaces = o.ca.predecessor(o.asked.names)
	}
	if err := o.ca.settings.fits(dir); err != nil {
		return err
	}
	got, err := o.ca.server.post(ctx, o.as, dir.NewOrder, request)
	if request.Replaces != "" && refusesReplacement(err) {
		request.Replaces = ""
		got, err = o.ca.server.post(ctx, o.as, dir.NewOrder, request)
	}
	if err != nil {
		return err
	}
	url, err := o.ca.server.at(got.header.Get("Location"))
	if err != nil {
		return err
	}
	o.kept = record{Account: o.as.kid, Order: url}
	return o.read(got)
}

// refusesReplacement reports whether a server may have refused an order for what it replaces:
// another order did that already, or the server does not know the certificate (Pebble answers
// with 500 then).
func refusesReplacement(err error) bool {
	said, ok := errors.AsType[failure](err)
	return ok && said.kind != "rateLimited" && said.kind != "accountDoesNotExist"
}

// look asks for the order.
func (o *order) look(ctx context.Context) error {
	got, err := o.ca.server.post(ctx, o.as, o.kept.Order, nil)
	if err != nil {
		return err
	}
	return o.read(got)
}

// read takes an order from the server's reply; it must be the requested one.
func (o *order) read(got reply) error {
	o.at, o.header = resource{}, got.header
	if err := got.into(o.ca.server.url.Host, &o.at); err != nil {
		return err
	}
	wants := identifiers(o.asked.names)
	if !same(o.at.Identifiers, wants) || len(o.at.Authorizations) > len(wants) {
		return ca.Errorf(ca.Internal, "%s made an order for other names than asked for", o.ca.server.url.Host)
	}
	return nil
}

// step brings the order one state further.
func (o *order) step(ctx context.Context) error {
	switch o.at.Status {
	case "pending":
		if err := o.prove(ctx); err != nil {
			return err
		}
		return o.again(ctx)
	case "ready":
		return o.finalize(ctx)
	case "processing":
		return o.again(ctx)
	case "invalid":
		return failed("the order", o.at.Error)
	}
	return ca.Errorf(ca.Internal, "%s returned unknown order status %.64q", o.ca.server.url.Host, o.at.Status)
}

// again looks at the order once more, after a while if this is not the first look.
func (o *order) again(ctx context.Context) error {
	before := o.at.Status
	if o.looks++; o.looks > 1 || before == "processing" {
		if err := pause(ctx, o.header, o.looks); err != nil {
			return err
		}
	}
	if err := o.look(ctx); err != nil {
		return err
	}
	if o.at.Status != before {
		o.looks = 0
	}
	return nil
}

// pause waits as long as the server asks, or longer each time.
func pause(ctx context.Context, header http.Header, looks int) error {
	wait := min(maxPause, minPause<<min(looks-1, 10))
	if word := rest.RetryAfter(header); word > 0 {
		wait = min(maxWord, word)
	}
	return sleep(ctx, wait)
}

func (o *order) finalize(ctx context.Context) error {
	got, err := o.ca.server.post(ctx, o.as, o.at.Finalize, map[string]string{"csr": base64.RawURLEncoding.EncodeToString(o.asked.csr)})
	if kindOf(err) == "orderNotReady" { // an earlier call did it, whose answer was lost
		return o.again(ctx)
	}
	if err != nil {
		return err
	}
	return o.read(got)
}
