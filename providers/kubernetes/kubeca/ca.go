package kubeca

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
)

const (
	// A call waits for its certificate for most of its deadline, and not longer than this: the
	// host comes back, and finds the object.
	longestWait = 25 * time.Second
	// The pauses between two looks at an object that cannot be watched double from the first to
	// the longest.
	firstPause, longestPause = 300 * time.Millisecond, 5 * time.Second
	// A certificate is there before its object is deleted, and does not wait long for that: see
	// aside.
	removeTimeout = 3 * time.Second
)

// CA is a [ca.Client] and a [ca.RootSource]. It has no goroutine of its own, keeps no
// connection between calls, and is safe for concurrent use.
type CA struct {
	settings    Settings
	log         *slog.Logger
	issued      provider.Issued[string, status] // by the names of the objects, which are gone
	sweeps      sweeps
	connections connections
	keeps       atomic.Bool   // the API server refused to delete
	longest     time.Duration // that a call waits
}

// Open checks the settings without access to files or the network. An error has the reason
// [ca.Invalid].
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	return &CA{settings: settings, log: settings.Log, connections: connections{held: map[fingerprint]*connection{}}, longest: longestWait}, nil
}

// CSRSign implements [ca.Client]. It creates an object for the request, or finds that of an
// earlier try, waits until it is signed or refused, and deletes it. A pending one stays:
// the error is [ca.Pending], or [ca.Unavailable] once it is approved, and a repeat of the
// request finds it. The names are those of the CSR.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if _, err := pki.ParseCSR(req.CSR); err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	order := c.settings.order(req)
	if got, ok := c.issued.Of(order.Metadata.Name); ok {
		return c.certificate(req, got)
	}
	s, err := c.session(req.Token)
	if err != nil {
		return ca.Certificate{}, err
	}
	defer s.close()
	got, err := c.obtain(ctx, s, order)
	if err != nil {
		return ca.Certificate{}, err
	}
	c.sweep(ctx, s)
	return c.certificate(req, got)
}

// obtain returns the status with the certificate, and remembers it.
func (c *CA) obtain(ctx context.Context, s *session, order object) (status, error) {
	at, err := c.settings.collection(s)
	if err != nil {
		return status{}, err
	}
	found, err := c.place(ctx, s, at, order)
	if err == nil {
		found, err = c.await(ctx, s, at, found)
	}
	if errors.Is(err, errDeleted) {
		// By another call for the same request, which has it now, or by another client.
		if got, ok := c.issued.Of(order.Metadata.Name); ok {
			return got, nil
		}
		return status{}, ca.Errorf(ca.Unavailable, "%s was deleted before it was signed", order)
	}
	if err != nil {
		return status{}, err
	}
	if refused := found.refused(); refused != nil {
		c.remove(ctx, s, at, found)
		return status{}, refused
	}
	c.issued.Keep(order.Metadata.Name, status{Certificate: found.Status.Certificate, CA: found.Status.CA})
	c.remove(ctx, s, at, found)
	return found.Status, nil
}

// collection returns the path of the objects.
func (s Settings) collection(to *session) (string, error) {
	if s.Issuer == nil {
		return "/apis/certificates.k8s.io/v1/certificatesigningrequests", nil
	}
	namespace := cmp.Or(s.Namespace, to.namespace)
	if !label.MatchString(namespace) {
		return "", ca.Errorf(ca.Unavailable, "namespace is not set, and neither the kubeconfig nor a service account has one")
	}
	return "/apis/cert-manager.io/v1/namespaces/" + namespace + "/certificaterequests", nil
}

// place creates the object, or finds that of an earlier try. Any client that may create objects
// could have made one of that name: an object with another spec is foreign.
func (c *CA) place(ctx context.Context, s *session, at string, order object) (found object, err error) {
	err = s.Do(ctx, kubeapi.Call{Method: http.MethodPost, Path: at, Body: order}, &found)
	if kubeapi.Answered(err, http.StatusConflict) {
		err = s.Do(ctx, kubeapi.Call{Path: at + "/" + order.Metadata.Name}, &found)
		if kubeapi.Answered(err, http.StatusNotFound) {
			return object{}, errDeleted // meanwhile
		}
	}
	if err != nil {
		return object{}, err
	}
	return found.checked(order)
}

// checked returns the object as the server has it if it is the one that was ordered.
func (o object) checked(order object) (object, error) {
	o.APIVersion, o.Kind = order.APIVersion, order.Kind // items of lists and watches may lack them
	if o.Metadata.Name != order.Metadata.Name || o.Metadata.UID == "" || !o.asks(order) {
		return object{}, ca.Errorf(ca.Aborted, "%s is there and asks for something else than this request: it is not this provider's; delete it", order)
	}
	return o, nil
}

// await returns the object when it is issued or refused. It gives up before the host's
// deadline, so that the host gets an error with what the object waits for.
func (c *CA) await(ctx context.Context, s *session, at string, o object) (object, error) {
	within, cancel := context.WithTimeout(ctx, c.patience(ctx))
	defer cancel()
	for pause := firstPause; !o.decided(); pause = min(2*pause, longestPause) {
		last := o
		err := s.watch(within, at, o, func(now object) bool {
			if same, err := now.checked(last); err == nil {
				o = same
			}
			return o.decided()
		})
		if errors.Is(err, errDeleted) {
			return o, err
		}
		if err == nil {
			continue
		}
		if err := c.look(within, s, at, &o, pause); err != nil && within.Err() == nil {
			return o, err
		}
		switch {
		case ctx.Err() != nil:
			return o, ca.Errorf(ca.ReasonFor(ctx.Err()), "%s is not signed yet; a repeat goes on with it", o)
		case within.Err() != nil && !o.decided():
			return o, o.undecided()
		}
	}
	return o, nil
}

func (o object) decided() bool { return o.refused() != nil || o.issued() }

// patience is how long a call may wait.
func (c *CA) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.longest
	}
	return min(c.longest, time.Until(deadline)*8/10)
}

// look asks for the object after a pause, where it could not be watched.
func (c *CA) look(ctx context.Context, s *session, at string, o *object, pause time.Duration) error {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	var now object
	err := s.Do(ctx, kubeapi.Call{Path: at + "/" + o.Metadata.Name}, &now)
	switch {
	case kubeapi.Answered(err, http.StatusNotFound):
		return errDeleted
	case err != nil && ca.ActionFor(err) == ca.Wait:
		return nil // it may be there in a moment
	case err != nil:
		return err
	}
	if now.Metadata.UID != o.Metadata.UID {
		return errDeleted // and made anew
	}
	same, err := now.checked(*o)
	if err == nil {
		*o = same
	}
	return err
}

// remove deletes an object that is done. A failure costs an object that is swept later.
func (c *CA) remove(ctx context.Context, s *session, at string, o object) {
	within, cancel := aside(ctx, removeTimeout)
	defer cancel()
	err := s.Delete(within, at+"/"+o.Metadata.Name, o.Metadata.UID, "")
	switch {
	case err == nil:
	case kubeapi.Answered(err, http.StatusForbidden):
		if !c.keeps.Swap(true) {
			c.log.Warn("may not delete requests that are done: they stay until Kubernetes or an operator deletes them", "error", err)
		}
	default:
		c.log.Debug("cannot delete a request that is done", "name", o.Metadata.Name, "error", err)
	}
}

// aside is for what a certificate that is there waits for: half of what is left of the call at
// most, so that the host gets the answer.
func aside(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, most)
}

// certificate puts the certificates in order. The host verifies them.
func (c *CA) certificate(req ca.SignRequest, got status) (ca.Certificate, error) {
	bags := slices.DeleteFunc([][]byte{got.Certificate, got.CA}, func(bag []byte) bool { return len(bytes.TrimSpace(bag)) == 0 })
	reply, err := chain.Certificate(req.CSR, bags...)
	if err != nil {
		return ca.Certificate{}, err
	}
	if c.settings.publishesRoots() {
		reply.Roots = nil // Roots has them
	} else if len(reply.Roots) == 0 {
		// A repeat finds the certificate among those that are remembered, and costs none.
		err := ca.Errorf(ca.Unavailable, "issuer %s returned no root: set bundle_file, config_map or cluster_trust_bundle", c.settings.Issuer.Name)
		err.RetryAfter = failurePause
		return ca.Certificate{}, err
	}
	return reply, nil
}
