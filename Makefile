# One-liners into hack/ and go. CONTROLPLANE_DIR is where `make up` keeps its state.
IMAGE ?= registry.example/steadwatch/controller:v0.1.0
CONTROLPLANE = go run ./hack/controlplane/cmd/controlplane

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile bin/controller
	CGO_ENABLED=0 go build -trimpath -o bin/controller ./cmd/controller

.PHONY: demo
demo: ## from nothing to a Ready WebApp on a private control plane; Ctrl-C cleans up
	go build -o bin/demo ./hack/demo && bin/demo

.PHONY: test
test: ## all tests, on a real API server (built first: about 15 minutes once)
	hack/test.sh

.PHONY: test-long
test-long: ## the full lengths of what the tests shorten, an hour or so
	STEADWATCH_LONG=1 hack/test.sh -timeout 90m ./cmd/controller ./hack/system ./pkg/controller ./pkg/controller/webapp ./pkg/controller/undecodable

.PHONY: bench
bench: ## what docs/measurements.md and docs/queue.md show: decoding, initial sync, queue, 5,000 WebApps
	hack/bench.sh

.PHONY: faults
faults: ## every fault at full length: docs/faults.md, three quarters of an hour
	go run ./hack/faults -out docs/faults.md

.PHONY: heapdump
heapdump: ## 90 Secrets of 1 MiB, and none of their data in the controller's memory (Linux): docs/measurements.md
	go run ./hack/heapdump

.PHONY: verify
verify: ## format, vet, staticcheck, imports, generated files, manifests
	hack/verify.sh

.PHONY: generate
generate: ## deepcopy, clientset, listers, apply configurations, CRDs
	hack/update-codegen.sh

.PHONY: up
up: ## start a control plane in .run/ and leave it running
	$(CONTROLPLANE) up

.PHONY: down
down: ## stop it and remove what it left
	$(CONTROLPLANE) down

.PHONY: image
image: ## build the container image IMAGE with whatever builder is there
	hack/image.sh $(IMAGE)

.PHONY: clean
clean: down ## also remove bin/
	rm -rf bin
