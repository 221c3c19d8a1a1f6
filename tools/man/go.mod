module github.com/countersign-dev/countersign/tools/man

go 1.26.0

toolchain go1.27.1
