package ra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A door with a final word must be able to tell what can never be right from what an
// authority refuses, which may be about its own settings.
func TestOwnRefusalsDifferFromAnAuthoritys(t *testing.T) {
	short, keys := mesh(), mesh()
	short.MaxTTL, keys.KeyTypes = time.Minute, []string{"rsa-4096"}
	for name, c := range map[string]struct {
		rule   ra.Rule
		change func(*ra.Request)
		says   error // of the authority
		want   *ca.Error
		own    bool
		key    bool
	}{
		"no rule":                       {mesh(), func(r *ra.Request) { r.Subject.Cluster = "elsewhere" }, nil, ca.ErrDenied, true, false},
		"a name that cannot be made":    {mesh(), func(r *ra.Request) { r.Subject.ServiceAccount = "a b" }, nil, ca.ErrDenied, true, false},
		"a malformed CSR":               {mesh(), func(r *ra.Request) { r.CSR = []byte("x") }, nil, ca.ErrInvalid, true, false},
		"a forged CSR":                  {mesh(), func(r *ra.Request) { r.CSR = damaged(empty(0)) }, nil, ca.ErrInvalid, true, false},
		"a key of another type":         {keys, nil, nil, ca.ErrInvalid, true, true},
		"too short a lifetime":          {mesh(), func(r *ra.Request) { r.TTL = time.Minute }, nil, ca.ErrDenied, true, false},
		"a rule that grants too little": {short, nil, nil, ca.ErrNotConfigured, false, false},
		"an unknown door":               {mesh(), func(r *ra.Request) { r.Door = "back door" }, nil, ca.ErrInvalid, false, false},
		"the authority denies":          {mesh(), nil, ca.ErrDenied, ca.ErrDenied, false, false},
		"the authority cannot sign it":  {mesh(), nil, ca.ErrInvalid, ca.ErrInvalid, false, false},
		"the authority is away":         {mesh(), nil, ca.ErrUnavailable, ca.ErrUnavailable, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, c.rule) }, func(h *house) {
				h.ca.Before = func(context.Context, ca.SignRequest) error { return c.says }
				req := request()
				if c.change != nil {
					c.change(&req)
				}
				err := h.refused(req, c.want)
				if ra.Refused(err) != c.own || errors.Is(err, ra.ErrKeyType) != c.key {
					t.Errorf("%v: the engine's own is %t, about the key %t", err, ra.Refused(err), errors.Is(err, ra.ErrKeyType))
				}
			})
		})
	}
}
