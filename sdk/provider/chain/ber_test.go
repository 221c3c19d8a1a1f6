package chain

import (
	"bytes"
	"testing"
)

func FuzzNextElement(f *testing.F) {
	for _, seed := range []string{"\x30\x00", "\x30\x80\x02\x01\x01\x00\x00", "\x31\x82\x00\x01\x00\x00", "\x30\x80\x30\x80\x00\x00\x00\x00\x05"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, ber []byte) {
		e, rest, ok := next(ber, 0)
		if !ok {
			return
		}
		if !bytes.Equal(append(bytes.Clone(e.full), rest...), ber) || e.tag != ber[0] || !bytes.Contains(e.full[2:], e.body) {
			t.Errorf("%x: %x in %x, then %x", ber, e.body, e.full, rest)
		}
		if again, none, ok := next(e.full, 0); !ok || len(none) > 0 || !bytes.Equal(again.body, e.body) {
			t.Errorf("%x alone is %x", e.full, again.body)
		}
	})
}
