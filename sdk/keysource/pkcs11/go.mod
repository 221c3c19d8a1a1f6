module github.com/countersign-dev/countersign/sdk/keysource/pkcs11

go 1.26.0

toolchain go1.27.1

require (
	github.com/miekg/pkcs11 v1.1.2
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.48.0 // indirect

require (
	github.com/countersign-dev/countersign v0.0.0
	github.com/google/uuid v1.6.0 // indirect
)

replace github.com/countersign-dev/countersign => ../../..
