package selfsigned

import (
	"bytes"
	"testing"
)

func TestEachPairMadeAheadIsAnother(t *testing.T) {
	next := Ahead()
	var last []byte
	for range 3 {
		pair, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(pair.Cert(), last) {
			t.Error("one pair was returned twice")
		}
		last = pair.Cert()
	}
}
