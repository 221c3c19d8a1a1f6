package secret

import (
	"errors"
	"fmt"
)

// First returns a Source of several: a name is answered by the first of them that
// knows it, be it with an error. Without any it knows no name. It is safe for concurrent
// use, and closing the sources stays the caller's.
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
	return nil, fmt.Errorf("secret %.256q: %w", name, ErrUnknown)
}

// Watch watches the name wherever it may be: who knows it may change.
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
		return nil, fmt.Errorf("secret %.256q: %w", name, ErrUnknown)
	}
	return stop, nil
}
