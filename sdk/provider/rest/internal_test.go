package rest

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

func TestDefaultTimeoutIsTwentySeconds(t *testing.T) {
	base, err := setting.ParseURL("https://ca.example.org")
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[time.Duration]time.Duration{0: 20 * time.Second, time.Second: time.Second} {
		client, err := New(Config{URL: base, Timeout: said})
		if err != nil || client.config.Timeout != want {
			t.Errorf("%s: %v, %v", said, client, err)
		}
	}
}
