module github.com/countersign-dev/countersign/tools/modules

go 1.26.0

require golang.org/x/mod v0.39.0
