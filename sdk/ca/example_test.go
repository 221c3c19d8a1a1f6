package ca_test

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// authority is a CA that is closed on Sundays.
type authority struct{}

func (authority) CSRSign(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if req.Token == "" {
		return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "a token is needed for %s", req.SubjectID)
	}
	err := ca.Errorf(ca.Unavailable, "it is Sunday")
	err.RetryAfter = time.Hour
	return ca.Certificate{}, err
}

// An error of a client determines what the caller does, also when it is wrapped.
func ExampleActionFor() {
	var client ca.Client = authority{}
	for _, token := range []ca.Token{"", "secret"} {
		_, err := client.CSRSign(context.Background(), ca.SignRequest{SubjectID: "spiffe://example.org/web", Token: token})
		err = fmt.Errorf("authority: %w", err)
		fmt.Println(ca.ActionFor(err) == ca.RefreshToken, ca.ActionFor(err) == ca.Wait, ca.RetryAfter(err))
	}
	// Output:
	// true false 0s
	// false true 1h0m0s
}
