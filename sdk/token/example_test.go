package token_test

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// The credential for an authority's next request. However it is printed, it is not shown.
func ExampleStatic() {
	var source token.Source = token.Static{Value: "s3cret"}
	bearer, err := source.Token(context.Background())
	fmt.Println(bearer.Token, bearer.Token == ca.Token("s3cret"), err)
	// Output: (set) true <nil>
}
