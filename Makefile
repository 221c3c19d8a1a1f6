# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
# Every target sets up what it needs by itself, outside git: foreign programs in the user's
# cache folder (scripts/cache.bash; CACHE= names another), what is of this clone in $(OUT).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go
OUT := $(CURDIR)/.cache
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
MODULES := . control-plane examples plugin-host providers/citadel providers/google sdk/keysource/pkcs11 test

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## the binaries, into bin/
	$(BUILD) -o bin/ ./plugin-host/cmd/countersign ./control-plane/cmd/countersign-discovery ./providers/{citadel,file,google,step,vault}/cmd/...

.PHONY: demo
demo: ## a CA, an agent, a provider process: see certificates arrive, rotate, survive a crash
	@$(BUILD) -o bin/ ./plugin-host/cmd/countersign ./providers/file/cmd/...
	@examples/quickstart/demo.sh bin

.PHONY: test
test: $(OUT) ## all packages' tests, with real Envoy and real provider processes
	@# -p: they wait a third of their time, for processes and deadlines
	COUNTERSIGN_PROGRAMS="$$(scripts/programs)" COUNTERSIGN_ENVOY="$$(scripts/get-envoy)" COUNTERSIGN_GRPCJS="$$(scripts/get-grpcjs)" \
		COUNTERSIGN_PROVIDER_PYTHON="$$(scripts/get-provider-python)" COUNTERSIGN_PROVIDER_NODE="$$(scripts/get-provider-node)" \
		$(DEBIAN) \
		$(GO) test -vet=off -p $$(($$(nproc) + 2)) -timeout 10m $(TESTFLAGS) work

.PHONY: e2e
e2e: e2e-clone e2e-step e2e-vault e2e-kubernetes ## the heavy parts, each of which is a target

.PHONY: e2e-clone
e2e-clone: $(OUT) debian ## a fresh clone, providers that break each rule, keys in a token; pictures of the page, below .cache/
	$(DEBIAN) $(GO) test -count=1 -timeout 5m -artifacts -outputdir $(OUT) -run 'Page|TheSystemdUnit|EachAlert|TheDashboard' ./test/e2e
	$(GO) test -tags e2e,grpcnotrace -timeout 20m -run 'TestNewcomer|TestTheLeast' -v ./test/e2e
	$(GO) test -count=1 -tags e2e,grpcnotrace -timeout 10m -run ThatBreaksOneRule ./plugin-host/providertest
	softhsm="$$($(SOFTHSM))"; [ -z "$$softhsm" ] || COUNTERSIGN_SOFTHSM="$$softhsm" $(RACE) -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./sdk/keysource/pkcs11

.PHONY: e2e-step
e2e-step: ## the Step provider against a real step-ca
	COUNTERSIGN_STEP_CA="$$(scripts/get-step-ca)" $(GO) test -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./providers/step/...

.PHONY: e2e-vault
e2e-vault: ## the Vault provider against a real Vault
	COUNTERSIGN_VAULT="$$(scripts/get-vault)" $(GO) test -count=1 -tags e2e,grpcnotrace -timeout 5m -run Real ./providers/vault/...

.PHONY: e2e-kubernetes
e2e-kubernetes: ## what serves Kubernetes against a real API server
	COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)" COUNTERSIGN_ENVOY="$$(scripts/get-envoy)" \
		$(GO) test -count=1 -tags e2e,grpcnotrace -timeout 15m ./control-plane/...

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## measure docs/figures.md again
	@$(GO) run ./test/bench -o docs/figures.md

.PHONY: envoy
envoy: $(OUT) ## real Envoy, into the cache
	@scripts/get-envoy

.PHONY: grpcjs
grpcjs: $(OUT) ## another gRPC stack, @grpc/grpc-js, into the cache
	@scripts/get-grpcjs

.PHONY: languages
languages: $(OUT) ## the providers in Python and Node.js, with what they need, into the cache
	@scripts/get-provider-python
	@scripts/get-provider-node

.PHONY: debian
debian: ## Chromium, promtool, systemd-analyze, nginx, HAProxy and PostgreSQL, which CI installs
	@$(CHROMIUM)
	@$(PROMTOOL)
	@$(SYSTEMD_ANALYZE)
	@$(NGINX)
	@$(HAPROXY)
	@$(POSTGRES)

.PHONY: cross
cross: $(OUT) ## sdk and plugin-host are sound for darwin and windows, too
	cd tools/cross && GOWORK=off $(GO) build -o $(OUT)/cross .
	for system in darwin windows; do GOOS=$$system $(OUT)/cross ./internal/... ./sdk/... $(patsubst %,./%/...,$(filter plugin-host sdk/%,$(MODULES))); done

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
api: $(OUT) ## write the public API down anew, into api/
	cd tools/api && GOWORK=off $(GO) build -o $(OUT)/api .
	$(OUT)/api

.PHONY: api-check
api-check: api ## fail where the public API is not what is written down in api/
	@test -z "$$(git status --porcelain -- api)" || { git status --short -- api; git --no-pager diff -- api; exit 1; }

.PHONY: lint
lint: ## gofmt, and golangci-lint (vet is one of its parts) over all modules
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	@mkdir -p $(OUT)
	cd tools/lint && GOWORK=off $(GO) build -o $(OUT)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	for module in $(MODULES); do ( \
		cd $$module; case $$module in */pkcs11) export CGO_ENABLED=1; esac; \
		$(OUT)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./... \
	); done

.PHONY: tidy
tidy: ## go.mod and go.sum of every module
	for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy); done

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin $(OUT)

$(OUT):
	@mkdir -p $@
