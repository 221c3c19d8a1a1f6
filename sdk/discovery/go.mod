module github.com/countersign-dev/countersign/sdk/discovery

go 1.26.0

require (
	github.com/countersign-dev/countersign v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/countersign-dev/countersign => ../..
