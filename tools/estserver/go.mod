module github.com/countersign-dev/countersign/tools/estserver

go 1.26.0

tool github.com/globalsign/est/cmd/estserver

require (
	github.com/globalsign/est v1.0.7 // indirect
	github.com/globalsign/pemfile v1.0.0 // indirect
	github.com/go-chi/chi v4.1.2+incompatible // indirect
	github.com/google/go-tpm v0.9.6 // indirect
	github.com/smallstep/scep v0.0.0-20250318231241-a25cabb69492 // indirect
	go.mozilla.org/pkcs7 v0.0.0-20200128120323-432b2356ecb1 // indirect
	golang.org/x/crypto v0.35.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/term v0.29.0 // indirect
	golang.org/x/time v0.0.0-20210220033141-f8bda1e9f3ba // indirect
)
