# `make help` lists the targets. Each sets up what it needs by itself, outside of git: foreign
# programs in the user's cache folder (scripts/cache.bash; CACHE= names another), what is
# built of this clone in bin/ and $(OUT).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go
OUT := $(CURDIR)/.cache
# Everything here is built with one Go, so that all of it comes from one build cache.
export GOTOOLCHAIN := $(shell scripts/toolchain)
# The oldest Go that embedders can have.
OLDEST := go1.26.8
# Programs, tests, linters and tools are compiled with the same flags: with other flags, all
# dependencies are compiled again, which takes 360 s of a core. -tags on a command line
# replaces this one.
export CGO_ENABLED := 0
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -tags=grpcnotrace
# FIPS=1 builds with Go's FIPS 140-3 module that is certified, FIPS=inprocess with the one that is
# in the process of it.
ifdef FIPS
export GOFIPS140 := $(patsubst 1,certified,$(FIPS))
endif
# The host hashes a binary at each start, so keep it small.
BUILD := $(GO) build -ldflags '-s -w'
# Tests wait a third of their time for processes and deadlines.
TESTS := $(GO) test -vet=off -p $(shell echo $$(($$(nproc) + 2)))
HEAVY := $(TESTS) -count=1 -tags e2e,grpcnotrace
TOOL = GOWORK=off $(GO) tool -modfile=tools/$(1)/go.mod
WITH := scripts/with-programs
SOFTHSM := scripts/get-debian softhsm2 "the test of keys in a token is" softhsm2-util
MODULES := $(patsubst ./%,%,$(shell awk '/^\t/ {print $$1}' go.work))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: PROGRAMS ?= ./cmd/countersign ./cmd/countersign-{discovery,ra} $(addsuffix /...,$(wildcard ./providers/*/cmd))
build: BIN ?= bin
build: ## build all programs into bin/ (FIPS=1, FIPS=inprocess: with Go's FIPS 140-3 module)
	$(BUILD) -o $(BIN)/ $(PROGRAMS)

STAGE ?= bin
STAGED := $(OUT)/stage
PREFIX ?= /usr/local
.PHONY: install
install: ## install STAGE (bin) below PREFIX (/usr/local): programs, providers, manual pages, completion, unit (DESTDIR=)
	@[ "$(STAGE)" != bin ] || [ -x bin/countersign ] || { echo "install: nothing is built yet; run make build first" >&2; exit 1; }
	@scripts/stage $(STAGE) $(STAGED)/install
	@scripts/install-stage $(STAGED)/install $(PREFIX) $(DESTDIR)

VERSION ?= v0.0.0-dev
.PHONY: packages
packages: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
packages: ## make deb and rpm packages of STAGE (what make build makes) as VERSION into dist/
	@[ "$(STAGE)" != bin ] || $(MAKE) --no-print-directory build
	@scripts/stage $(STAGE) $(STAGED)/packages
	@GOWORK=off GOFLAGS= $(GO) run -C tools/packages -trimpath . -stage $(STAGED)/packages -version $(VERSION) -to $(CURDIR)/dist

.PHONY: demo
demo: ## show an agent and a provider: certificates arrive, rotate and survive a crash
	@$(BUILD) -o bin/ ./cmd/countersign ./providers/file/cmd/...
	@examples/quickstart/demo.sh bin

TESTFLAGS ?=
# The packages that take longest begin first.
ALL := ./test/e2e ./plugin-host ./cmd/countersign work
.PHONY: test
test: ## run all packages' tests, with real Envoy and real providers (TESTFLAGS=-count=1: again)
	@$(WITH) $(TESTS) -timeout 10m $(TESTFLAGS) $(ALL)

.PHONY: check
check: ## run everything else that CI runs; takes about 45 minutes
	@scripts/cache missing | sed 's/^/to obtain first: /'
	@for target in $(CHECKS); do $(MAKE) --no-print-directory $$target; done
CHECKS := check-tree proto-check api-check cross check-oldest check-fips check-modules check-packages check-dist lint race check-kit e2e-clone e2e-pkcs11 e2e-acme e2e-aws e2e-est e2e-step e2e-spiffe e2e-spire e2e-vault e2e-kubernetes e2e-istio e2e-cert-manager fuzz

.PHONY: check-tree
check-tree: ## check imports, go.mod files, the documents' commands and the provider template
	@$(TESTS) -count=1 -timeout 10m -tags check,grpcnotrace ./test/house
	@$(WITH) $(TESTS) -count=1 -timeout 10m -tags check,grpcnotrace -run 'DocumentedCommandsWork|NewProvider' ./cmd/countersign/...

.PHONY: race
race: ## run all packages' tests with the race detector, also in the programs that they start
	@CGO_ENABLED=1 $(WITH) -race $(TESTS) -race -count=1 -timeout 14m $(ALL)

.PHONY: check-kit
check-kit: ## run the conformance suite against providers in other languages and ones that break each rule, and the agent beside hostile ones
	@scripts/get-provider-rust >/dev/null
	@$(WITH) $(HEAVY) -timeout 10m -parallel 6 -run HostileProvider ./test/e2e
	@$(WITH) $(HEAVY) -timeout 10m -run 'EndsEachSecond|AbruptSwaps' ./test/e2e
	@$(WITH) $(HEAVY) -timeout 20m -run PassesSuite ./plugin-host ./cmd/countersign/internal/scaffold
	@$(HEAVY) -timeout 10m -run ThatBreaksOneRule ./plugin-host/providertest
	@$(HEAVY) -timeout 10m -run 'NoVerdict|StandsStill' ./sdk/catest/conformance

.PHONY: e2e-clone
e2e-clone: ## build and use a fresh clone, as a newcomer does; pictures of the pages, below .cache/
	@mkdir -p $(OUT)
	@$(WITH) $(TESTS) -count=1 -timeout 5m -artifacts -outputdir $(OUT) -run 'Page|SystemdUnit|EachAlert|Dashboard' ./test/e2e
	@$(WITH) $(HEAVY) -timeout 20m -run 'TestNewcomer|TestMinimumLimits' -v ./test/e2e

.PHONY: e2e-pkcs11
e2e-pkcs11: ## test keys in a real PKCS #11 token
	@softhsm="$$($(SOFTHSM))"; [ -z "$$softhsm" ] || \
		CGO_ENABLED=1 COUNTERSIGN_SOFTHSM="$$softhsm" $(HEAVY) -race -timeout 5m -run Real ./sdk/keysource/pkcs11

.PHONY: e2e-acme
e2e-acme: ## test the ACME provider against a real Pebble
	@export COUNTERSIGN_PEBBLE COUNTERSIGN_BIND COUNTERSIGN_NSUPDATE; COUNTERSIGN_PEBBLE="$$(scripts/get-pebble)"; \
		COUNTERSIGN_BIND="$$(scripts/get-debian bind9 "the test with a name server is" named /usr/sbin/named)"; \
		COUNTERSIGN_NSUPDATE="$$(scripts/get-debian bind9-dnsutils "the test with a name server is" nsupdate)"; \
		$(WITH) $(HEAVY) -timeout 8m -run Real ./providers/acme/...

.PHONY: e2e-aws
e2e-aws: ## test the AWS provider against moto
	@export COUNTERSIGN_MOTO; COUNTERSIGN_MOTO="$$(scripts/get-moto)"; $(HEAVY) -timeout 5m -run Real ./providers/aws/...

.PHONY: e2e-est
e2e-est: ## test the EST provider against a real EST server
	@export COUNTERSIGN_EST_SERVER; COUNTERSIGN_EST_SERVER="$$(scripts/get-est-server)"; $(HEAVY) -timeout 5m -run Real ./providers/est/...

.PHONY: e2e-step
e2e-step: ## test the Step provider against a real step-ca
	@export COUNTERSIGN_STEP_CA; COUNTERSIGN_STEP_CA="$$(scripts/get-step-ca)"; $(HEAVY) -timeout 5m -run Real ./providers/step/...

.PHONY: e2e-spiffe
e2e-spiffe: ## test the Workload API with spiffe-helper and SPIFFE libraries in Python, Rust and Java
	@export COUNTERSIGN_SPIFFE_{HELPER,PYTHON,RUST,JAVA}; COUNTERSIGN_SPIFFE_HELPER="$$(scripts/get-spiffe-helper)"; \
		COUNTERSIGN_SPIFFE_PYTHON="$$(scripts/get-spiffe-python)"; COUNTERSIGN_SPIFFE_RUST="$$(scripts/get-spiffe-rust)"; \
		COUNTERSIGN_SPIFFE_JAVA="$$(scripts/get-spiffe-java)"; $(WITH) $(HEAVY) -timeout 5m -parallel 8 -run RealSPIFFE ./test/e2e

.PHONY: e2e-spire
e2e-spire: ## test SPIRE as a source, and its bundle endpoint, against a real SPIRE
	@export COUNTERSIGN_SPIRE; COUNTERSIGN_SPIRE="$$(scripts/get-spire)"; $(HEAVY) -timeout 8m -run Real ./sdk/spiresecret; \
		$(WITH) $(HEAVY) -timeout 5m -run RealSPIRE ./test/e2e

.PHONY: e2e-vault
e2e-vault: ## test the Vault provider against a real Vault, and fallback from AWS to Vault to files
	@export COUNTERSIGN_VAULT; COUNTERSIGN_VAULT="$$(scripts/get-vault)"; $(HEAVY) -timeout 5m -run Real ./providers/vault/...; \
		$(WITH) $(HEAVY) -timeout 5m -run RealFallback ./test/e2e

.PHONY: e2e-kubernetes
e2e-kubernetes: ## test the control plane against real API servers
	@export COUNTERSIGN_KUBERNETES COUNTERSIGN_VAULT COUNTERSIGN_HELM COUNTERSIGN_PROMETHEUS_OPERATOR; \
		COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)"; COUNTERSIGN_VAULT="$$(scripts/get-vault)"; \
		COUNTERSIGN_HELM="$$(scripts/get-helm)"; COUNTERSIGN_PROMETHEUS_OPERATOR="$$(scripts/get-prometheus-operator)"; \
		(cd tools/dist && $(DIST) $(GO) test -vet=off -count=1 -tags e2e,grpcnotrace -run RealHelm .); \
		$(WITH) $(HEAVY) -timeout 15m ./kubernetes/... ./ra/istioca/... ./cmd/countersign-ra/... ./cmd/countersign-discovery/... ./test/deploy ./test/ingress ./test/kubeca

.PHONY: e2e-istio
e2e-istio: ## test Istio's CA API with Istio's own agent and CA, and the move of a mesh between CAs
	@export COUNTERSIGN_KUBERNETES COUNTERSIGN_VAULT COUNTERSIGN_ISTIO; COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)"; \
		COUNTERSIGN_VAULT="$$(scripts/get-vault)"; COUNTERSIGN_ISTIO="$$(scripts/get-istio)"; \
		$(WITH) $(HEAVY) -tags e2e,istio,grpcnotrace -timeout 8m -run RealIstio ./ra/istioca ./cmd/countersign-ra

.PHONY: e2e-cert-manager
e2e-cert-manager: ## test the issuer with cert-manager's own controllers and a real API server
	@export COUNTERSIGN_KUBERNETES COUNTERSIGN_CERT_MANAGER; COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)"; COUNTERSIGN_CERT_MANAGER="$$(scripts/get-cert-manager)"; \
		$(HEAVY) -tags e2e,certmanager,grpcnotrace -timeout 8m -run Real ./kubernetes/certmanager/real

RUNS ?= 1000
PROCESS_RUNS ?= 10
LOAD ?= 0
.PHONY: verdicts
verdicts: ## run each check of the suite RUNS times (1000), as processes PROCESS_RUNS times (10), beside LOAD busy loops
	scripts/beside-load $(LOAD) $(HEAVY) -timeout 0 -v -run NoVerdict ./sdk/catest/conformance -args -runs $(RUNS)
	scripts/beside-load $(LOAD) $(HEAVY) -count=$(PROCESS_RUNS) -timeout 0 -run 'ThatBreaksOneRule|ConformingProviders' ./plugin-host/providertest

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: build ## measure docs/figures.md again (FIGURES=tls: print these alone)
	@$(TESTS) -run '^$$' -bench Figures -benchtime 1x -timeout 0 -v ./test/bench -args $(or $(FIGURES),-page docs/figures.md)

.PHONY: e2e-kubernetes-long
e2e-kubernetes-long: ## test what takes the life of a request, or a certificate's of an hour: about 45 minutes
	@export COUNTERSIGN_KUBERNETES; COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)"; $(HEAVY) -tags e2e,long,grpcnotrace -timeout 75m -parallel 4 -run RealLong -v ./kubernetes/signing/real

.PHONY: bench-kubernetes
bench-kubernetes: ## measure countersign-ra in real clusters, and write docs/figures.md
	@export COUNTERSIGN_KUBERNETES; COUNTERSIGN_KUBERNETES="$$(scripts/get-kubernetes)"; $(WITH) $(HEAVY) -timeout 20m -run '^$$' -bench . -benchtime 1x ./kubernetes/signing/real -args -page $(CURDIR)/docs/figures.md

FLEET ?= 1000
.PHONY: bench-fleet
bench-fleet: ## model a mesh of FLEET (1000) identities behind Istio's door, and write docs/figures.md
	@$(TESTS) -count=1 -timeout 0 -run FleetFigures ./ra/istioca -args -identities $(FLEET) -page $(CURDIR)/docs/figures.md

DOOR ?= 4000
.PHONY: bench-door
bench-door: ## measure Istio's CA API as it is shipped, DOOR (4000) certificates for each row, and write docs/figures.md
	@$(TESTS) -count=1 -timeout 0 -run DoorFigures ./cmd/countersign-ra -args -certificates $(DOOR) -idle 1000,10000 -page $(CURDIR)/docs/figures.md

.PHONY: load-door
load-door: ## have ten ztunnels of 200 pods and 500 sidecars ask Istio's CA API at once, at 7 certificates a second: 10 minutes
	@$(HEAVY) -timeout 60m -run LoadedDoor -v ./cmd/countersign-ra -args -of-node 200 -quota 7

.PHONY: cross
cross: ## check that the sdk and the plugin host compile for macOS and Windows
	@cd tools/cross && GOWORK=off $(GO) build -o $(OUT)/cross .
	@for system in darwin windows; do GOOS=$$system $(OUT)/cross ./internal/... ./sdk/... ./ra/... ./discovery/... $(patsubst %,./%/...,$(filter plugin-host sdk/%,$(MODULES))); done

.PHONY: proto
proto: ## generate the code of proto/
	$(call TOOL,proto) buf lint
	$(call TOOL,proto) buf generate

.PHONY: proto-release
proto-release: ## record what proto-check compares the protocol with: at a release only
	$(call TOOL,proto) buf build -o proto/provider/v1/released.binpb --exclude-source-info --path proto/provider/v1

.PHONY: proto-check
proto-check: proto ## check that the generated code is committed, and that the protocol breaks no release
	$(call TOOL,proto) buf breaking --against proto/provider/v1/released.binpb
	@test -z "$$(git status --porcelain -- proto)" || { git status --short -- proto; git diff --stat -- proto; exit 1; }

.PHONY: api
api: ## record the public API in api/
	@cd tools/api && GOWORK=off $(GO) build -o $(OUT)/api .
	@$(OUT)/api

.PHONY: api-check
api-check: api ## check that the public API is the recorded one
	@test -z "$$(git status --porcelain -- api)" || { git status --short -- api; git --no-pager diff -- api; exit 1; }

TO ?= $(OUT)/modules
.PHONY: modules release-mods
modules: ## write the modules of VERSION into a folder (TO=) that serves them as a GOPROXY
	@GOWORK=off $(GO) run -C tools/modules . $(VERSION) $(abspath $(TO))

release-mods: ## write the go.mod and go.sum of VERSION and print how to tag it (docs/versioning.md)
	@GOWORK=off $(GO) run -C tools/modules . -write $(VERSION) $(abspath $(TO))

PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64
DIST = PATH="$$($(GO) env GOROOT)/bin:$$PATH" GOWORK=off
.PHONY: dist
dist: ## make all that the release VERSION has in dist/, of PLATFORMS (all), signed with KEY (docs/releases.md)
	@GOWORK=off $(GO) run -C tools/modules . $(VERSION) $(OUT)/dist/proxy >/dev/null
	@$(DIST) $(GO) run -C tools/dist . -version $(VERSION) -platforms '$(PLATFORMS)' -key '$(abspath $(KEY))' \
		-modules $(OUT)/dist/proxy -work $(OUT)/dist -out $(CURDIR)/dist

.PHONY: check-dist
check-dist: ## test how a release is made, with a real container runtime and minisign
	@export COUNTERSIGN_PROGRAMS COUNTERSIGN_RUNC COUNTERSIGN_MINISIGN; COUNTERSIGN_PROGRAMS="$$(scripts/programs)"; \
		COUNTERSIGN_RUNC="$$(scripts/get-debian runc "the test of images is" runc /usr/sbin/runc)"; \
		COUNTERSIGN_MINISIGN="$$(scripts/get-debian minisign "the test of signatures is" minisign)"; \
		cd tools/dist && $(DIST) $(GO) test -vet=off -count=1 -timeout 10m .

.PHONY: check-oldest
check-oldest: ## build the sdk, and test keys and TLS, with the oldest Go that it supports, which lacks ML-DSA
	@GOTOOLCHAIN=$(OLDEST) $(GO) build ./sdk/... ./ra/... ./discovery/...
	@GOTOOLCHAIN=$(OLDEST) $(TESTS) ./sdk/pki ./sdk/tlsconfig ./providers/file/fileca

.PHONY: check-fips fips
check-fips: ## test that programs built with FIPS= have the module on, and refuse the keys that it lacks
	@$(MAKE) --no-print-directory fips FIPS=1 MODULE=v1.0.
	@$(MAKE) --no-print-directory fips FIPS=inprocess MODULE=v1.26.

fips: # GOFIPS140 comes from FIPS alone, as for who builds
	@COUNTERSIGN_FIPS=$(MODULE) $(TESTS) ./internal/program/buildinfo ./sdk/pki
	@$(MAKE) --no-print-directory build BIN=$(OUT)/fips PROGRAMS=./cmd/countersign
	@said="$$($(OUT)/fips/countersign version)"; [[ $$said == *"$(MODULE)"* ]] || { echo "version says $$said: want the FIPS module $(MODULE)" >&2; exit 1; }

.PHONY: check-modules
check-modules: ## check that others can get, install and build on a release, and that go.work.sum is complete
	@cd tools/modules && GOWORK=off $(GO) test -vet=off -count=1 -timeout 20m .

.PHONY: check-packages
check-packages: ## make a package twice, install, upgrade and remove it on a clean machine, and check the manual pages
	@export COUNTERSIGN_RPM COUNTERSIGN_MANDOC; COUNTERSIGN_RPM="$$(scripts/get-debian rpm "the test of rpm packages is" rpm)"; \
		COUNTERSIGN_MANDOC="$$(scripts/get-debian mandoc "the check of the manual pages is" mandoc)"; \
		export COUNTERSIGN_PROGRAMS; COUNTERSIGN_PROGRAMS="$$(scripts/programs)"; \
		cd tools/packages && GOWORK=off GOFLAGS=-trimpath $(GO) test -vet=off -count=1 -timeout 10m .

.PHONY: lint
lint: ## run gofmt and golangci-lint (with vet) on all modules, and actionlint on the workflows
	@$(call TOOL,actionlint) actionlint -shellcheck= -pyflakes= .github/workflows/*.yaml
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l $$(git ls-files '*.go')); echo -n "$${unformatted:+$$unformatted$$'\n'}"; test -z "$$unformatted"
	@cd tools/lint && GOWORK=off $(GO) build -o $(OUT)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@failed=0; for module in $(MODULES); do ( \
		cd $$module; case $$module in */pkcs11) export CGO_ENABLED=1; esac; \
		$(OUT)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./... \
	) || failed=1; done; exit $$failed

.PHONY: tidy
tidy: ## tidy go.mod and go.sum of all modules, and go.work.sum
	@for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy); done
	@rm -f go.work.sum && $(GO) list -m all >/dev/null && $(GO) list -test -deps work >/dev/null

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin $(OUT)
