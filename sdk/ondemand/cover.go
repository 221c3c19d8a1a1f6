package ondemand

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// covering returns another certificate to serve under the name, or nil.
func (s *Set) covering(e *entry, now time.Time) *secret.Item {
	if s.cfg.Covering == nil || e.rule.removed {
		return nil
	}
	for _, name := range e.rule.conf.Cover {
		item, err := s.cfg.Covering.Peek(secret.Caller{}, name)
		if err == nil && item.Kind == secret.KeyPair && !item.Expired(now) && isFor(item, e.name) {
			return item
		}
	}
	return nil
}

// isFor reports whether a certificate is for a DNS name in lower case. A wildcard stands for one label
// (RFC 6125, section 6.4.3).
func isFor(item *secret.Item, name string) bool {
	_, parent, _ := strings.Cut(name, ".")
	return slices.ContainsFunc(item.Identity.DNSNames, func(dns string) bool {
		dns = strings.ToLower(strings.TrimSuffix(dns, "."))
		return dns == name || dns == "*."+parent
	})
}

// follow serves the certificate that covers the name now.
func (s *Set) follow(e *entry, now time.Time) {
	before := e.cover
	e.cover = s.covering(e, now)
	if e.cover == nil || e.cover.Version != before.Version {
		e.recount()
		s.notify(e)
	}
}
