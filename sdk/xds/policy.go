package xds

import "time"

// policy is how one dialect serves a type. All streams of an engine share it.
type policy struct {
	url      string
	hold     time.Duration
	lists    bool     // supports the wildcard
	complete bool     // an answer is the full state; the client deletes what it omits
	removes  bool     // removals are sent by name
	answers  *answers // for complete types
	apart    bool     // the client takes or refuses each resource of a response by itself
}

// policies returns the policies of all types for each dialect. Only state of the world
// has complete answers; delta names removed resources.
func policies[C any](cfg Config[C]) (sotw, delta []policy) {
	for _, t := range cfg.Types {
		_, lists := t.Source.(Lister[C])
		p := policy{url: t.URL, hold: cfg.Hold, lists: lists, apart: t.Complete}
		whole, named := p, p
		whole.complete, whole.answers, named.removes = t.Complete, &answers{}, true
		sotw, delta = append(sotw, whole), append(delta, named)
	}
	return sotw, delta
}
