package settings

import "testing"

func TestAddressHasItsShareOfReviews(t *testing.T) {
	for _, c := range []struct {
		ofAddress, all uint32
		want           int
	}{{600, 1000, 19}, {1, 1000, 1}, {1000, 1000, 32}, {5000, 1000, 32}, {200, 0, 32}, {1 << 31, 1 << 31, 32}} {
		if got := ReviewsOfAddress(c.ofAddress, c.all); got != c.want {
			t.Errorf("%d of %d authentications: %d reviews, want %d", c.ofAddress, c.all, got, c.want)
		}
	}
}
