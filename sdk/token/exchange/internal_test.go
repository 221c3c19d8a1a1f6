package exchange

import (
	"testing"
	"time"
)

func TestDefaultTimeoutIsFiveSeconds(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Minute: time.Minute} {
		client, err := New(Config{URL: "https://sts.example.org/token", Timeout: said})
		if err != nil || client.config.Timeout != want || client.server.Timeout != want {
			t.Errorf("%s: %+v, %v", said, client, err)
		}
	}
}
