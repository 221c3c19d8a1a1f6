package spiresecret

import "testing"

func TestOnlyTrustedUsersMayServe(t *testing.T) {
	for _, c := range []struct {
		uid uint32
		ok  bool
	}{{0, true}, {1000, true}, {1001, true}, {1002, false}} {
		if err := checkServer(c.uid, []uint32{1001}, 1000); (err == nil) != c.ok {
			t.Errorf("uid %d: %v", c.uid, err)
		}
	}
}
