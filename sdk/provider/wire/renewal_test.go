package wire_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const someLeaf = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

// advisor answers with its advice, or with its error.
type advisor struct {
	fake
	asked  string
	advice ca.RenewalInfo
	err    error
}

func (a *advisor) RenewalInfo(_ context.Context, leaf []byte) (ca.RenewalInfo, error) {
	a.asked = string(leaf)
	return a.advice, a.err
}

func advice() ca.RenewalInfo {
	start := time.Date(2026, 11, 22, 10, 0, 0, 500, time.UTC)
	return ca.RenewalInfo{Start: start, End: start.Add(time.Hour), Explanation: "https://ca.example/why", RetryAfter: 6 * time.Hour}
}

func TestRenewalInfoArrivesUnchanged(t *testing.T) {
	a := &advisor{advice: advice()}
	got, err := wire.NewRemote(serve(t, a), wire.RemoteOptions{}).RenewalInfo(t.Context(), []byte(someLeaf))
	if err != nil || got != advice() || a.asked != someLeaf {
		t.Errorf("got %+v, %v, for %q", got, err, a.asked)
	}
}

func TestRenewalInfoOfNoCertificateIsInvalid(t *testing.T) {
	remote := wire.NewRemote(serve(t, &advisor{advice: advice()}), wire.RemoteOptions{})
	for _, leaf := range []string{"", "hello", someLeaf + someLeaf, someLeaf + strings.Repeat("\n", 1<<20)} {
		if _, err := remote.RenewalInfo(t.Context(), []byte(leaf)); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%.40q: %v", leaf, err)
		}
	}
}

func TestAdviceThatCannotBeFollowedIsInternal(t *testing.T) {
	for name, change := range map[string]func(*ca.RenewalInfo){
		"no-start":           func(i *ca.RenewalInfo) { i.Start = time.Time{} },
		"no-end":             func(i *ca.RenewalInfo) { i.End = time.Time{} },
		"end-before-start":   func(i *ca.RenewalInfo) { i.End = i.Start.Add(-time.Hour) },
		"empty-window":       func(i *ca.RenewalInfo) { i.End = i.Start },
		"beyond-year-10000":  func(i *ca.RenewalInfo) { i.End = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"script-in-the-link": func(i *ca.RenewalInfo) { i.Explanation = "javascript://ca.example/%0aalert(1)" },
		"long-link":          func(i *ca.RenewalInfo) { i.Explanation = "https://ca.example/" + strings.Repeat("x", 3000) },
		"password-in-link":   func(i *ca.RenewalInfo) { i.Explanation = "https://user:secret@ca.example/" },
	} {
		wrong := advice()
		change(&wrong)
		_, err := wire.NewRemote(serve(t, &advisor{advice: wrong}), wire.RemoteOptions{}).RenewalInfo(t.Context(), []byte(someLeaf))
		if !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFarRetryAfterOfAdviceIsBounded(t *testing.T) {
	far := advice()
	far.RetryAfter = 1000 * time.Hour
	got, err := wire.NewRemote(serve(t, &advisor{advice: far}), wire.RemoteOptions{}).RenewalInfo(t.Context(), []byte(someLeaf))
	if err != nil || got.RetryAfter != 24*time.Hour {
		t.Errorf("%s, %v", got.RetryAfter, err)
	}
}
