module github.com/countersign-dev/countersign/tools/api

go 1.26.0

toolchain go1.27.1
