module github.com/countersign-dev/countersign/tools/modules

go 1.26.0

toolchain go1.27.1

require golang.org/x/mod v0.39.0
