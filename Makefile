# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
# Every target sets up what it needs by itself, below $(CACHE), outside git.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go
CACHE ?= $(CURDIR)/.cache
# What is shipped, what is linted, the tools and the tests without the race detector are
# compiled in one way: each other way takes 360 s of a core for all that is imported. A
# -tags of a command's own stands instead of this one.
export CGO_ENABLED := 0
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -tags=grpcnotrace
# The bytes of a binary are hashed at each start, so they are kept few.
BUILD := $(GO) build -ldflags '-s -w'
# The race detector needs cgo, and some tests need the paths of the source. Vet is lint's: here
# it would look through all that is imported another time, 90 s of a core.
RACE := CGO_ENABLED=1 GOFLAGS="$(GOFLAGS) -trimpath=false" $(GO) test -race -vet=off
TOOL = GOWORK=off $(GO) tool -modfile=tools/$(1)/go.mod
CHROMIUM := scripts/get-debian chromium "the tests of the page in a real browser are" chromium chromium-browser google-chrome
PROMTOOL := scripts/get-debian prometheus "the tests of the alert rules are" promtool
SYSTEMD_ANALYZE := scripts/get-debian systemd "the test of the systemd unit is" systemd-analyze
SOFTHSM := scripts/get-debian softhsm2 "the test of keys in a token is" softhsm2-util
NGINX := scripts/get-debian nginx "the test with nginx is" nginx /usr/sbin/nginx
HAPROXY := scripts/get-debian haproxy "the test with HAProxy is" haproxy /usr/sbin/haproxy
POSTGRES := scripts/get-debian postgresql-15 "the tests with PostgreSQL are" /usr/lib/postgresql/15/bin/postgres
DEBIAN = COUNTERSIGN_CHROMIUM="$$($(CHROMIUM))" COUNTERSIGN_PROMTOOL="$$($(PROMTOOL))" COUNTERSIGN_SYSTEMD_ANALYZE="$$($(SYSTEMD_ANALYZE))" \
	COUNTERSIGN_NGINX="$$($(NGINX))" COUNTERSIGN_HAPROXY="$$($(HAPROXY))" COUNTERSIGN_POSTGRES="$$($(POSTGRES))"
MODULES := . plugin-host providers/citadel providers/file providers/google providers/kubernetes providers/step providers/vault sdk/authn/federation sdk/controlplane sdk/discovery sdk/keysource/pkcs11 examples examples/control-plane examples/custom-generator e2e bench

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## the binaries, into bin/
	$(BUILD) -o bin/ ./plugin-host/cmd/countersign
	$(BUILD) -o bin/countersign-provider-citadel ./providers/citadel
	$(BUILD) -o bin/countersign-provider-file ./providers/file
	$(BUILD) -o bin/countersign-provider-google ./providers/google
	$(BUILD) -o bin/countersign-provider-step ./providers/step
	$(BUILD) -o bin/countersign-provider-vault ./providers/vault
	$(BUILD) -o bin/countersign-discovery ./providers/kubernetes/cmd/countersign-discovery

.PHONY: demo
demo: build ## a CA, an agent, a provider process: see certificates arrive, rotate, survive a crash
	@examples/quickstart/demo.sh bin

.PHONY: test
test: envoy grpcjs languages debian cross ## everything that CI holds against every change, with the race detector and the real programs
	@# -count=1: the tests run programs that the test cache knows nothing of
	@# -p: they wait a third of their time, for processes and deadlines
	COUNTERSIGN_ENVOY="$$(scripts/get-envoy $(CACHE))" COUNTERSIGN_GRPCJS="$$(scripts/get-grpcjs $(CACHE))" \
		COUNTERSIGN_PROVIDER_PYTHON="$$(scripts/get-provider-python $(CACHE))" COUNTERSIGN_PROVIDER_NODE="$$(scripts/get-provider-node $(CACHE))" \
		$(DEBIAN) \
		$(RACE) -p $$(($$(nproc) + 2)) -count=1 -timeout 14m work

.PHONY: e2e
e2e: $(CACHE) debian ## the heavy parts: a fresh clone, real CAs, providers that break each rule; pictures of the page, below .cache/
	$(DEBIAN) $(GO) test -count=1 -timeout 5m -artifacts -outputdir $(CACHE) -run 'Page|TheSystemdUnit|EachAlert|TheDashboard' ./e2e
	$(GO) test -tags e2e,grpcnotrace -timeout 20m -run 'TestNewcomer|TestTheLeast' -v ./e2e
	$(GO) test -count=1 -tags e2e,grpcnotrace -timeout 10m -run ThatBreaksOneRule ./plugin-host/providertest
	$(GO) test -count=1 -tags e2e,grpcnotrace -timeout 10m -run NoVerdict ./sdk/catest/conformance
	COUNTERSIGN_STEP_CA="$$(scripts/get-step-ca $(CACHE))" $(GO) test -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./providers/step/...
	COUNTERSIGN_VAULT="$$(scripts/get-vault $(CACHE))" $(GO) test -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./providers/vault/...
	COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes $(CACHE))" COUNTERSIGN_ENVOY="$$(scripts/get-envoy $(CACHE))" \
		$(GO) test -count=1 -tags e2e,grpcnotrace -timeout 15m ./providers/kubernetes/...
	softhsm="$$($(SOFTHSM))"; [ -z "$$softhsm" ] || COUNTERSIGN_SOFTHSM="$$softhsm" $(RACE) -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./sdk/keysource/pkcs11

RUNS ?= 1000
PROCESS_RUNS ?= 10
LOAD ?= 0
.PHONY: verdicts
verdicts: ## each check of the conformance kit RUNS times (1000) against its mutant and a good provider, PROCESS_RUNS times (10) as processes, beside LOAD busy loops (0)
	scripts/beside-load $(LOAD) $(GO) test -count=1 -tags e2e,grpcnotrace -timeout 0 -v -run NoVerdict ./sdk/catest/conformance -args -runs $(RUNS)
	scripts/beside-load $(LOAD) $(GO) test -count=$(PROCESS_RUNS) -tags e2e,grpcnotrace -timeout 0 -run 'ThatBreaksOneRule|ThatKeepTheRules' ./plugin-host/providertest

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## the README's figures
	@$(GO) run ./bench

.PHONY: envoy
envoy: $(CACHE) ## real Envoy, into the cache
	@scripts/get-envoy $(CACHE)

.PHONY: grpcjs
grpcjs: $(CACHE) ## another gRPC stack, @grpc/grpc-js, into the cache
	@scripts/get-grpcjs $(CACHE)

.PHONY: languages
languages: $(CACHE) ## the providers in Python and Node.js, with what they need, into the cache
	@scripts/get-provider-python $(CACHE)
	@scripts/get-provider-node $(CACHE)

.PHONY: debian
debian: ## Chromium, promtool, systemd-analyze, nginx, HAProxy and PostgreSQL, which CI installs
	@$(CHROMIUM)
	@$(PROMTOOL)
	@$(SYSTEMD_ANALYZE)
	@$(NGINX)
	@$(HAPROXY)
	@$(POSTGRES)

.PHONY: cross
cross: $(CACHE) ## sdk and plugin-host are sound for darwin and windows, too
	cd tools/cross && GOWORK=off $(GO) build -o $(CACHE)/cross .
	for system in darwin windows; do GOOS=$$system $(CACHE)/cross ./internal/... ./sdk/... $(patsubst %,./%/...,$(filter plugin-host sdk/%,$(MODULES))); done

.PHONY: proto
proto: ## generate the code of proto/ anew
	$(call TOOL,proto) buf lint
	$(call TOOL,proto) buf generate

.PHONY: proto-release
proto-release: ## what proto-check holds the protocol against: at a release, and never to make it pass
	$(call TOOL,proto) buf build -o proto/provider/v1/released.binpb --exclude-source-info --path proto/provider/v1

.PHONY: proto-check
proto-check: proto ## fail where the generated code is not what is committed, or the protocol breaks with what was released
	$(call TOOL,proto) buf breaking --against proto/provider/v1/released.binpb
	@test -z "$$(git status --porcelain -- proto)" || { git status --short -- proto; git diff --stat -- proto; exit 1; }

.PHONY: api
api: $(CACHE) ## write the public API down anew, into api/
	cd tools/api && GOWORK=off $(GO) build -o $(CACHE)/api .
	$(CACHE)/api

.PHONY: api-check
api-check: api ## fail where the public API is not what is written down in api/
	@test -z "$$(git status --porcelain -- api)" || { git status --short -- api; git --no-pager diff -- api; exit 1; }

.PHONY: lint
lint: ## gofmt, and golangci-lint (vet is one of its parts) over all modules
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	@mkdir -p $(CACHE)
	cd tools/lint && GOWORK=off $(GO) build -o $(CACHE)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	for module in $(MODULES); do ( \
		cd $$module; case $$module in */pkcs11) export CGO_ENABLED=1; esac; \
		$(CACHE)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./... \
	); done

.PHONY: tidy
tidy: ## go.mod and go.sum of every module
	for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy); done

.PHONY: clean
clean: ## remove what was built and cached here
	rm -rf bin $(CACHE)

$(CACHE):
	@mkdir -p $@
