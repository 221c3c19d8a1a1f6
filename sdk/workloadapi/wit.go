package workloadapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"google.golang.org/grpc"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// WITSource keeps WIT-SVIDs: a Source of package witsvid. Experimental. Its methods are safe for
// concurrent use; errors have the reasons of package ca.
type WITSource interface {
	// Follow keeps a WIT-SVID of a SPIFFE ID until stop and calls notify, which does not block,
	// after each change of Held.
	Follow(id string, notify func()) (stop func(), err error)
	// Held returns the WIT-SVID, the private key that it is bound to, a JWK, and when it ends.
	Held(id string) (wit ca.Token, key []byte, ends time.Time, err error)
	// Keys returns the public keys, a JWK set; nil while they are not known, and an empty set if the
	// authority has never had any.
	Keys() []byte
	// Missing reports whether the authority signs no WIT-SVIDs.
	Missing() bool
	// Watch calls notify, which does not block, after each change of Keys or Missing, until stop.
	Watch(notify func()) (stop func())
}

// liveWIT is the WIT-SVID of an identity.
type liveWIT struct {
	liveIdentity
	token ca.Token
	key   []byte
}

// FetchWITSVID sends WIT-SVIDs of all identities of the caller, or of the one it asks for, and again after
// each change. Those that are not there yet follow, but none comes before that of the caller's default
// identity.
func (s *Service) FetchWITSVID(in *workloadv1.WITSVIDRequest, to grpc.ServerStreamingServer[workloadv1.WITSVIDResponse]) error {
	if err := s.offersWIT(to.Context()); err != nil {
		return err
	}
	return s.attach(to.Context(), func(st *stream) error {
		w := &witStream{service: s, asked: in.GetSpiffeId(), notify: func() { st.wake("") }, stops: map[string]func(){}}
		defer w.end()
		return s.serve(to.Context(), st, w.look, view.witsVersion, func(view) bool { return true }, func(v view) error { return to.Send(v.witSVIDs()) })
	})
}

// WITBundles has the WIT keys of foreign trust domains: a Foreign of package witsvid. Experimental. Its
// methods are safe for concurrent use.
type WITBundles interface {
	// Keys returns the public keys of a trust domain, a JWK set; nil while they are not known.
	Keys(trustDomain string) []byte
	// Watch calls notify after each change of Keys, until stop. notify does not block.
	Watch(notify func()) (stop func())
}

// FetchWITBundles sends the keys of the caller's own and of federated trust domains, and again after each
// change. A federated trust domain whose keys are not known is left out.
func (s *Service) FetchWITBundles(_ *workloadv1.WITBundlesRequest, to grpc.ServerStreamingServer[workloadv1.WITBundlesResponse]) error {
	if err := s.offersWIT(to.Context()); err != nil {
		return err
	}
	from := keyBundles(s.offer.FederatedWIT)
	look := func(caller secret.Caller) (view, error) {
		if from == nil && s.offer.WIT.Missing() && bytes.Equal(s.offer.WIT.Keys(), noKeys) { // else WIT-SVIDs may be held
			return view{}, errNoWIT
		}
		return s.look(caller)
	}
	version := func(v view) string { return v.keysVersion(s.offer.WIT.Keys(), from) }
	return s.attach(to.Context(), func(st *stream) error {
		return s.serve(to.Context(), st, look, version, func(v view) bool { return v.hasForeignKeys(from) }, func(v view) error {
			return to.Send(&workloadv1.WITBundlesResponse{Bundles: keysByDomain[string](v, s.offer.WIT.Keys(), from)})
		})
	})
}

var errNoWIT = jwtStatus(ca.Errorf(ca.Unimplemented, "the authority signs no WIT-SVIDs"))

func (s *Service) offersWIT(ctx context.Context) error {
	_, err := s.callerOf(ctx, "WIT-SVIDs", s.offer.WIT != nil)
	return err
}

// witStream follows the WIT-SVIDs of one stream.
type witStream struct {
	service *Service
	asked   string // SPIFFE ID; empty: all
	notify  func()
	stops   map[string]func() // by SPIFFE ID that is followed
}

// look is Service.look with the WIT-SVIDs of the identities that are asked for.
func (w *witStream) look(caller secret.Caller) (view, error) {
	v, err := w.service.look(caller)
	if err != nil {
		return v, err
	}
	identities, err := v.named(w.asked)
	if err != nil && !errors.Is(err, errNothing) {
		return v, err
	}
	if err := w.keep(identities); err != nil {
		return v, jwtStatus(err)
	}
	return w.join(v, identities)
}

// keep follows the WIT-SVIDs of these identities and no others.
func (w *witStream) keep(identities []liveIdentity) error {
	next := map[string]func(){}
	var failed error
	for _, h := range identities {
		stop, err := w.stops[h.pair.id], error(nil)
		if stop == nil && next[h.pair.id] == nil {
			stop, err = w.service.offer.WIT.Follow(h.pair.id, w.notify)
		}
		if failed = cmp.Or(failed, err); stop != nil {
			next[h.pair.id] = stop
			delete(w.stops, h.pair.id)
		}
	}
	w.end()
	w.stops = next
	return failed
}

// end stops following the identities in stops.
func (w *witStream) end() {
	for _, stop := range w.stops {
		stop()
	}
}

// join adds the WIT-SVIDs that are held to the view.
func (w *witStream) join(v view, identities []liveIdentity) (view, error) {
	v.waits, v.ends = v.waits && w.asked == "", time.Time{}
	for i, h := range identities {
		token, key, ends, err := w.service.offer.WIT.Held(h.pair.id)
		switch {
		case err == nil:
			v.wits = append(v.wits, liveWIT{h, token, key})
			v.ends = earlier(v.ends, ends)
		case errors.Is(err, ca.ErrUnimplemented):
			return v, errNoWIT
		default:
			v.waits = v.waits || i == 0
		}
	}
	return v, nil
}

// witsVersion identifies the content of witSVIDs; empty while it must not be sent.
func (v view) witsVersion() string {
	if v.waits || len(v.wits) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, w := range v.wits {
		sum.Write([]byte(w.Certificate + "\x00" + w.token.Reveal() + "\x00"))
	}
	return string(sum.Sum(nil))
}

func (v view) witSVIDs() *workloadv1.WITSVIDResponse {
	out := &workloadv1.WITSVIDResponse{}
	for _, w := range v.wits {
		out.Svids = append(out.Svids, &workloadv1.WITSVID{SpiffeId: w.pair.id, WitSvid: w.token.Reveal(), WitSvidKey: string(w.key), Hint: w.Hint})
	}
	return out
}
