module github.com/countersign-dev/countersign/sdk/discovery

go 1.26.0

require (
	github.com/countersign-dev/countersign v0.0.0
	google.golang.org/protobuf v1.36.12
)

replace github.com/countersign-dev/countersign => ../..
