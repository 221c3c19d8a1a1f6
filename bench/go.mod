module github.com/countersign-dev/countersign/bench

go 1.26.0

replace github.com/countersign-dev/countersign => ../

replace github.com/countersign-dev/countersign/plugin-host => ../plugin-host

replace github.com/countersign-dev/countersign/providers/file => ../providers/file
