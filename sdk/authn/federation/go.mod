module github.com/countersign-dev/countersign/sdk/authn/federation

go 1.26.0

require (
	github.com/countersign-dev/countersign v0.0.0
	github.com/spiffe/go-spiffe/v2 v2.9.0
	go.uber.org/goleak v1.3.0
)

require github.com/go-jose/go-jose/v4 v4.1.5 // indirect

replace github.com/countersign-dev/countersign => ../../..
