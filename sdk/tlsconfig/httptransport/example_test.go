package httptransport_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
	"github.com/countersign-dev/countersign/sdk/tlsconfig/httptransport"
)

func Example() {
	var source secret.Source = &secret.Manager{} // in a program, secret.New's
	transport, err := httptransport.New(tlsconfig.Options{
		Source: source, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.SPIFFEID("spiffe://example.org/web"),
	}, nil)
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	fmt.Println(client.Timeout, err)
	// Output: 10s <nil>
}
