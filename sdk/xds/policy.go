package xds

import "time"

// policy is how a type is served in one dialect; the streams of an engine share it.
type policy struct {
	url      string
	hold     time.Duration
	lists    bool     // knows the wildcard
	complete bool     // an answer holds all, and what it leaves out is deleted
	removes  bool     // what is gone is named
	answers  *answers // complete ones
}

// policies returns those of the types in each dialect. Complete answers are the state
// of the world's: delta names what is gone.
func policies[C any](cfg Config[C]) (sotw, delta []policy) {
	for _, t := range cfg.Types {
		_, lists := t.Source.(Lister[C])
		p := policy{url: t.URL, hold: cfg.Hold, lists: lists}
		whole, named := p, p
		whole.complete, whole.answers, named.removes = t.Complete, &answers{}, true
		sotw, delta = append(sotw, whole), append(delta, named)
	}
	return sotw, delta
}
