module github.com/countersign-dev/countersign/tools/cross

go 1.26.0
