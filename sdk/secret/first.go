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

// Watch implements [Source]. It watches name in every source, as the one that has it may
// change.
func (f first) Watch(caller Caller, name string, notify func(name string)) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, source := range f {
		one, err := source.Watch(caller, name, notify)
		switch {
		case err == nil:
			stops = append(stops, one)
		case !errors.Is(err, ErrUnknown):
			stop()
			return nil, err
		}
	}
	if len(stops) == 0 {
		return nil, Unknown(name)
	}
	return stop, nil
}
