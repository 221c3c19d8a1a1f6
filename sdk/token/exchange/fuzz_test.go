package exchange

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const sent = "eyJhbGciOiJFUzI1NiJ9.the-token-that-was-sent"

func FuzzReply(f *testing.F) {
	f.Add(200, `{"access_token":"given","issued_token_type":"urn:x","token_type":"Bearer","expires_in":3600}`)
	f.Add(400, `{"error":"invalid_request","error_description":"`+sent+`"}`)
	f.Add(503, `<html>`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		c := call{Client: &Client{host: "sts"}}
		c.hide(sent)
		got, err := c.read(endpoint.Reply{Status: status, Header: http.Header{"Retry-After": {body}}, Body: []byte(body)})
		switch {
		case err != nil && (strings.Contains(err.Error(), sent) || len(err.Error()) > 1024 || ca.ReasonFor(err) == ca.Unknown):
			t.Errorf("%d %q: %v", status, body, err)
		case err == nil && (got.AccessToken == "" || got.IssuedType == "" || got.Expiry.After(time.Now().Add(maxLife))):
			t.Errorf("%q was taken: %+v", body, got)
		}
	})
}
