# Every command that a change needs. `make help` lists them.

MODULES := . examples/flashsale bench chaos
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZ    := 20s

# The race detector needs a C compiler, without which Go turns cgo off.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

.PHONY: demo
demo: ## Run the flash sale; ARGS="-h" lists its flags
	cd examples/flashsale && go run . $(ARGS)

.PHONY: test
test: ## Run every test; those that need redis-server use it if it is on the PATH
	@command -v redis-server >/dev/null || echo "skipped: what needs redis-server, which is not on the PATH"
	@test -n "$$DATABASE_URL" || echo "skipped: what needs PostgreSQL, for DATABASE_URL is not set"
	go test $(RACE) ./...
	go test -run 'TestAny(History|Day)' ./queue ./worker
	cd examples/flashsale && go test ./...
	cd bench && go test ./...
	cd chaos && go test -short -count=1 ./...

.PHONY: lint
lint: ## Check formatting, vet and the chosen linters in every module
	@for m in $(MODULES); do echo "lint $$m"; (cd $$m && go vet ./... && go run $(LINT) run ./...) || exit 1; done

.PHONY: race
race: ## Run every test with the race detector, the flash sale's too
	@for m in $(MODULES); do (cd $$m && go test -race ./...) || exit 1; done

.PHONY: cover
cover: ## Show the coverage of the library by its tests, package by package
	go test -coverpkg=./... -coverprofile=cover.out ./...
	@go tool cover -func=cover.out | tail -1

.PHONY: bench
bench: ## Compare with peers on servers of its own, some twenty minutes; ARGS="-h" lists its flags
	cd bench && go run . $(ARGS)

.PHONY: gobench
gobench: ## Run the Go benchmarks; they start their own redis-server
	go test -run '^$$' -bench . -benchmem ./lock ./queue ./worker

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZ=20s
	@for p in queue cmd/duly; do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$p/*_test.go | cut -c6-); do \
			go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ) ./$$p || exit 1; done; done

.PHONY: mutants
mutants: ## Switch each protection off, and see that a test fails; half an hour; ARGS="-run TestMutants/lease"
	@table=$$(mktemp) && DULY_MUTANTS=$$table go test -run TestMutants -count=1 -p 1 -timeout 120m -v $(ARGS) ./lock ./queue ./worker; \
		failed=$$?; cat $$table; rm -f $$table; exit $$failed

.PHONY: chaos
chaos: ## Inject faults and count what is lost, eight minutes; CHAOS=long takes hours, ARGS="-run Kill -args -seed 7"
	cd chaos && go test -count=1 -v -timeout $(if $(filter long,$(CHAOS)),24h,30m) . $(ARGS)

.PHONY: fmt
fmt: ## Format every module
	@for m in $(MODULES); do (cd $$m && go run $(LINT) fmt ./...) || exit 1; done
