// Not compiled: scripts/get-prometheus-operator takes the types of its API from it.
module github.com/countersign-dev/countersign/tools/prometheusoperator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
