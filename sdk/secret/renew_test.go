package secret_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestRenewedOnRequest(t *testing.T) { synctest.Test(t, renewedOnRequest) }

func renewedOnRequest(t *testing.T) {
	var ca *catest.CA
	e := newEngine(t, func(c *secret.Config) { ca = c.Authorities[0].Client.(*catest.CA) })
	first := e.held("default")
	ca.Next(1, catest.Fault{Delay: 10 * time.Second})
	if err := e.Renew(agent, "default"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if got := e.held("default"); got.Version != first.Version {
		t.Error("the old certificate is not served meanwhile")
	}
	if err := e.Renew(agent, "default"); err == nil || !strings.Contains(err.Error(), "is being renewed") {
		t.Errorf("a second one at once: %v", err)
	}
	after(time.Minute)
	second := e.held("default")
	if bytes.Equal(first.Key, second.Key) {
		t.Error("the key is the old one")
	}
	e.requests(2)

	// The waits after a failure stay.
	ca.Next(1, catest.Fault{Err: errors.New("away")})
	if err := e.Renew(agent, "default"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if err := e.Renew(agent, "default"); err == nil || !strings.Contains(err.Error(), "the next one begins at") {
		t.Errorf("after a failure: %v", err)
	}
	e.requests(3)
	for name, want := range map[string]string{"ROOTCA": "trust bundle", "other": "unknown secret"} {
		if err := e.Renew(agent, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
