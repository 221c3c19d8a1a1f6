package state

import "errors"

// maxBatch bounds what is written with one fsync, beside the record that exceeds it.
const maxBatch = 1 << 20

// unsynced is how much at the end of a log may be from a write that did not finish: after a power
// failure it may have been written in part and in any order. Records there are opened at the start.
const unsynced = int64(maxBatch + maxFrame)

// keyTries is how many records are tried with the key before the key is the wrong one.
const keyTries = 16

// scanner reads the index of a log.
type scanner struct {
	file   diskFile
	size   int64
	key    []byte
	id     string   // of the log; empty until a record was opened
	sealed []damage // what could not be opened until then
	end    int64    // of the last good frame
	found  func(frame)
	damage func(damage)
}

// damage is a stretch of a log that cannot be used.
type damage struct {
	from, to int64
	name     string // empty if it is unknown
	err      error
}

// run passes each good frame to found, in order, and each stretch that cannot be used to damage.
func (s *scanner) run() error {
	for at := int64(0); at < s.size; {
		f, err := readFrame(s.file, at, s.size)
		if err == nil {
			at = f.end()
			if err = s.take(f); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errRead) {
			return err
		}
		next, failed := findFrame(s.file, at+1, s.size)
		if failed != nil {
			return failed
		}
		s.damage(damage{at, next, f.Record, err})
		at = next
	}
	if s.id == "" {
		return errForeign
	}
	return nil
}

// errForeign keeps a log from being taken for an empty one.
var errForeign = errors.New("it has no record that can be decrypted: the key is another one, or the file is not a log of names; correct the key, or move the file away to begin with none")

// take checks a frame, by its seal if it may be unfinished or the key has opened none yet.
func (s *scanner) take(f frame) error {
	if s.id == "" || f.at >= s.size-unsynced {
		_, err := openFrame(s.file, f, s.key, s.id)
		switch {
		case errors.Is(err, errRead):
			return err
		case err != nil:
			return s.refuse(damage{f.at, f.end(), f.Record, err})
		}
	}
	if s.id == "" {
		s.begin(f.Log)
	}
	if f.Log != s.id {
		s.damage(damage{f.at, f.end(), f.Record, errors.New("it is a record of another log")})
		return nil
	}
	s.end = f.end()
	s.found(f)
	return nil
}

// refuse reports a record that cannot be opened, once another one shows that the key is right.
func (s *scanner) refuse(d damage) error {
	switch {
	case s.id != "":
		s.damage(d)
	case len(s.sealed) >= keyTries:
		return errForeign
	default:
		s.sealed = append(s.sealed, d)
	}
	return nil
}

func (s *scanner) begin(id string) {
	s.id = id
	for _, d := range s.sealed {
		s.damage(d)
	}
}
