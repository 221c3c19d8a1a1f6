package rest

import (
	"testing"
	"time"
)

func TestDefaultTimeoutIsTwentySeconds(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{0: 20 * time.Second, time.Second: time.Second} {
		client, err := New(Config{URL: "https://ca.example.org", Timeout: said})
		if err != nil || client.config.Timeout != want {
			t.Errorf("%s: %v, %v", said, client, err)
		}
	}
}
