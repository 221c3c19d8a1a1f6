module github.com/countersign-dev/countersign

go 1.26.0
