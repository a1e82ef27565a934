# polyplane's two commands are `make demo` and `make test`; both do all the set-up themselves.
SHELL := /bin/bash
export CGO_ENABLED := 0
# Looked up only where a recipe uses it: it may have to fetch Go first.
GO = $(eval GO := $(shell scripts/setup go))$(if $(GO),$(GO),$(error no Go to build with: see the message above))

.PHONY: help build demo test test-kernel test-boot soak attack bench generate dead fuzz clean deb install

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

build: ## the one binary, bin/polyplane
	@[ -e bin/polyplane ] || echo "building (the first time takes a minute or two)"
	@$(GO) build -trimpath -ldflags "-s -w" -o bin/polyplane ./cmd/polyplane

demo: ## two tenants' networks on three simulated nodes, proved isolated, and removed again (KEEP=1 leaves it running)
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@PATH=$$(scripts/path run) && export PATH && scripts/demo

test: ## everything
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	@GO=$(GO) scripts/test

test-kernel: ## what this machine's kernel may lack, in a Debian kernel under QEMU (KERNEL_TESTS="linux node/fabric:Netem")
	@scripts/setup kernel
	@$(MAKE) --no-print-directory build
	@GO=$(GO) scripts/test-kernel

test-boot: ## a real boot with systemd: a Debian under QEMU, the package installed, a reboot, a power cut (BOOT_SUITE=trixie)
	@scripts/setup boot
	@GO=$(GO) scripts/test-boot

soak: ## random operations under random faults (SOAK=30m, CHAOS_SEED=7, CLUSTER=1 with an external etcd, FAULTS=agent,up)
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	@GO=$(GO) scripts/soak

attack: ## what an enemy in an element, with a token or on the wire can do, and what others lose by it (ATTACKS="system:TestAttacks")
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	@GO=$(GO) scripts/attack

bench: ## the figures of docs/performance.md
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	@GO=$(GO) scripts/bench

generate: ## compiles the eBPF programs and writes the generated documents and schema again
	@scripts/setup test
	@$(GO) generate ./...

dead: ## functions that neither the programs nor the tests reach (needs the network once)
	@$(GO) run golang.org/x/tools/cmd/deadcode@v0.52.0 -test ./...

fuzz: ## a minute of every fuzzer (FUZZTIME=1m)
	@GO=$(GO) scripts/fuzz

install: build ## bin/polyplane to /usr/local/bin
	@scripts/setup run
	@install -m 755 bin/polyplane /usr/local/bin/polyplane

deb: ## Debian packages in dist/ (DEB_ARCHS="amd64 arm64", VERSION=1.2)
	@GO=$(GO) scripts/deb $(or $(DEB_ARCHS),amd64 arm64)

clean: ## what was built
	@rm -rf bin build dist
