package secret

import (
	"errors"
)

// First returns a Source that asks several in order: the first source that has a name
// answers for it, even with an error. Without sources it has no name. It is safe for
// concurrent use; the caller still closes the sources.
func First(sources ...Source) Source { return first(sources) }

type first []Source

// Peek implements [Source].
func (f first) Peek(caller Caller, name string) (*Item, error) {
	for _, source := range f {
		item, err := source.Peek(caller, name)
		if !errors.Is(err, ErrUnknown) {
			return item, err
		}
	}
	return nil, Unknown(name)
}

// refuser is a source that may have a name later which it refuses to watch, for another watcher.
type refuser interface {
	WatchRefused(name string, notify func(name string)) (stop func())
}

// Watch implements [Source]. It watches name in every source, as the one that has it may
// change.
func (f first) Watch(caller Caller, name string, notify func(name string)) (stop func(), err error) {
	var stops []func()
	accepted := false
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, source := range f {
		one, err := source.Watch(caller, name, notify)
		switch {
		case err == nil:
			stops, accepted = append(stops, one), true
		case !errors.Is(err, ErrUnknown):
			stop()
			return nil, err
		default:
			if r, ok := source.(refuser); ok {
				stops = append(stops, r.WatchRefused(name, notify))
			}
		}
	}
	if !accepted {
		stop()
		return nil, Unknown(name)
	}
	return stop, nil
}
