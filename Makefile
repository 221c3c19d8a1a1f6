# `make help` lists the targets. Each sets up what it needs by itself, outside of git: foreign
# programs in the user's cache folder (scripts/cache.bash; CACHE= names another), what is
# built of this clone in bin/ and .cache/. Parts of a target are chosen with NAME=; the script that
# it runs, scripts/check for instance, has the list.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go
OUT := $(CURDIR)/.cache
# Everything here is built with one Go, so that all of it comes from one build cache.
export GOTOOLCHAIN := $(shell scripts/toolchain)
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

.PHONY: help demo quick test check lint generate build install bench fuzz release tidy clean
help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' Makefile

NAME ?=
demo: ## show an agent and a provider: certificates arrive, rotate and survive a crash (NAME=on-demand: in Envoy's handshakes)
	@$(BUILD) -o bin/ ./cmd/countersign ./providers/file/cmd/...
ifeq ($(NAME),on-demand)
	@examples/on-demand/demo.sh bin "$$(scripts/get-envoy)"
else
	@examples/quickstart/demo.sh bin
endif

# Of the module test, nothing is left under -short. After an edit, two thirds of the time are
# compiler and linker, whose garbage collector takes a sixth of it.
quick: ## run the tests that need no process, no real time and no network
	@COUNTERSIGN_TREE=$$(scripts/tree) GOGC=400 $(TESTS) -short -timeout 5m $$(scripts/modules | sed '/^test$$/d; s|.*|./&/...|')

TESTFLAGS ?=
# The packages that take longest begin first.
test: ## run all packages' tests, with real Envoy and real providers (TESTFLAGS=-count=1: again)
	@scripts/with-programs $(TESTS) -timeout 10m $(TESTFLAGS) ./test/e2e ./cmd/countersign-ra/... ./plugin-host ./cmd/countersign/... work

check: ## run everything else that CI runs, or its parts NAME= (race, kubernetes, …)
	@scripts/check $(NAME)

lint: ## run gofmt, golangci-lint with vet on all modules, and actionlint on the workflows
	@scripts/check lint

generate: ## generate what is committed: NAME=proto, api, docs (all three), man
	@scripts/generate $(NAME)

PROGRAMS ?= ./cmd/countersign ./cmd/countersign-{discovery,ra} $(addsuffix /...,$(wildcard ./providers/*/cmd))
BIN ?= bin
build: ## build all programs into bin/ (FIPS=1, FIPS=inprocess: with Go's FIPS 140-3 module)
	$(BUILD) -o $(BIN)/ $(PROGRAMS)

STAGE ?= bin
PREFIX ?= /usr/local
install: ## install STAGE (bin) below PREFIX (/usr/local): programs, providers, manual pages, completion, unit (DESTDIR=)
	@[ "$(STAGE)" != bin ] || [ -x bin/countersign ] || { echo "install: nothing is built yet; run make build first" >&2; exit 1; }
	@scripts/stage $(STAGE) $(OUT)/stage/install
	@scripts/install-stage $(OUT)/stage/install $(PREFIX) $(DESTDIR)

bench: build ## measure docs/figures.md again (FIGURES=tls: print these alone; NAME=kubernetes, fleet, door, istio, broker, on-demand, store, caddy, releases: its other tables)
	@FIGURES='$(FIGURES)' scripts/bench $(NAME)

FUZZTIME ?= 30s
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

VERSION ?= v0.0.0-dev
release: ## make all that the release VERSION has in dist/, signed with KEY (PLATFORMS=; NAME=packages, modules, tags, push to REGISTRY: docs/releases.md)
	@VERSION='$(VERSION)' KEY='$(abspath $(KEY))' PLATFORMS='$(PLATFORMS)' STAGE='$(STAGE)' TO='$(abspath $(TO))' scripts/release $(NAME)

tidy: ## tidy go.mod and go.sum of all modules, and go.work.sum
	@for module in $$(scripts/modules); do (cd $$module && GOWORK=off $(GO) mod tidy); done
	@rm -f go.work.sum && $(GO) list -m all >/dev/null && $(GO) list -test -deps work >/dev/null

clean: ## remove what was built here
	rm -rf bin $(OUT)
