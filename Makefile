# SPDX-License-Identifier: Apache-2.0

# Tools have modules of their own, so that what they need is not what nodegate
# needs. Go builds them when they are used.
CONTROLLER_GEN := go tool -modfile=hack/tools/controller-gen/go.mod controller-gen
GOLANGCI_LINT  := go tool -modfile=hack/tools/golangci-lint/go.mod golangci-lint
ACTIONLINT     := go tool -modfile=hack/tools/actionlint/go.mod actionlint
HELM           := go tool -modfile=hack/tools/helm/go.mod helm

MODULES   := . $(patsubst %/go.mod,%,$(wildcard hack/tools/*/go.mod))
# Those of them that are programs and tests of ours.
OURS      := $(patsubst %/,%,$(sort $(dir $(wildcard hack/tools/*/*.go))))
CRD       := internal/crd/nodegate.dev_nodegates.yaml
GENERATED := api/v1alpha1/zz_generated.deepcopy.go $(CRD) \
             docs/reference/nodegate.md docs/reference/kubectl-gate.md docs/reference/programs.md docs/performance.md bench/RESULTS.md \
             bench/scale/RESULTS.md charts/nodegate deploy

# No information for debuggers: thousands of packages compile in a sixth less time
# without it, and stack traces and profiles do not need it. For a debugger, use 'go build'.
# Functions of client-go's generated packages are not inlined. They are constructors, which
# return generic types, and every package that inlines one compiles that type's methods.
# (The last flag that matches a package counts, so these have information for debuggers.)
FAST := -gcflags=all=-dwarf=false $(patsubst %,-gcflags=k8s.io/client-go/%/...=-l,kubernetes listers informers)
export GOFLAGS := $(filter-out $(FAST),$(shell go env GOFLAGS)) $(FAST)

# The modules are independent, also if the checkout is in a workspace of the user.
export GOWORK := off

# Compiles programs of the control plane, and packages of ours, before anything
# with a clock begins, and shows how far it is. The flags are the same everywhere:
# with other ones, all packages would be compiled again.
COMPILE := go run ./testcluster/cmd/nodegate-build
RUNNING := etcd,kube-apiserver,kube-scheduler,kube-controller-manager

# The version without MutatingAdmissionPolicy that e2e tests against (olderVersion there).
OLDER := 1.35

# Where 'make dist' and its sisters put what a release consists of.
DIST := dist

# The chart as manifests that nobody has Helm for; gates are applied by themselves,
# once their kind is there.
define render
$(HELM) template nodegate charts/nodegate --namespace nodegate-system --set defaultGate.enabled=false --set birth=$(1) \
	--set webhook.certificate=existing > $(2).tmp
sed -e '/^ *helm.sh\/chart:/d' -e '/^ *app.kubernetes.io\/managed-by: Helm$$/d' $(2).tmp > $(2)
@rm $(2).tmp
endef

# Null as the value of a label means the empty value, as in Kubernetes. Without a default, the
# API server would remove the label, and the selector would select more. controller-gen has no
# marker for the default of a map's values.
NULL_IS_EMPTY := awk '{ print } last ~ /^ *matchLabels:$$/ && sub(/additionalProperties:$$/, "  default: \"\"") { print } { last = $$0 }'

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Write what follows from other sources: code, CRD, reference, dashboard, chart, manifests, figures.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=$(dir $(CRD))
	$(NULL_IS_EMPTY) $(CRD) > $(CRD).tmp
	@mv $(CRD).tmp $(CRD)
	go run ./hack/reference
	go run ./hack/dashboard > charts/nodegate/files/dashboard.json
	go run ./hack/chart
	go run ./hack/performance
	go run ./hack/pictures -command 'kubectl gate why n1' internal/explain/testdata/held.txt > docs/images/why.svg
	$(call render,policy,deploy/nodegate.yaml)
	$(call render,webhook,deploy/before-1.36/nodegate.yaml)
	$(call render,policy --set agent.enabled=true --show-only templates/agent.yaml,deploy/agent/agent.yaml)
	$(call render,policy --set agent.enabled=true --set agent.announceShutdowns=true --show-only templates/agent.yaml,deploy/agent/announces-shutdowns.yaml)

# A packaged chart keeps the times of its files: they are the commit's, so that the
# same commit gives the same package wherever it is checked out.
COMMITTED := $(or $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null),2000-01-01T00:00:00Z)

WITH_IMAGE = $(if $(IMAGE),| sed 's|ghcr.io/nodegate/nodegate:[^"]*|$(IMAGE)|')

.PHONY: dist
dist: ## Make what is applied or installed from a release: manifests, with IMAGE if set, and the chart.
	mkdir -p $(DIST)
	cat deploy/base/namespace.yaml deploy/base/crd.yaml deploy/nodegate.yaml $(WITH_IMAGE) > $(DIST)/install.yaml
	cat deploy/base/namespace.yaml deploy/base/crd.yaml deploy/before-1.36/nodegate.yaml $(WITH_IMAGE) > $(DIST)/install-before-1.36.yaml
	@rm -rf $(DIST)/.chart && mkdir $(DIST)/.chart && cp -R charts/nodegate $(DIST)/.chart
	@find $(DIST)/.chart -exec touch -d $(COMMITTED) {} +
	$(HELM) package $(DIST)/.chart/nodegate --destination $(DIST)
	@rm -rf $(DIST)/.chart

.PHONY: verify
verify: generate lint ## Check that everything generated is up to date, tidy and without lint.
	@git diff --exit-code -- $(GENERATED) || \
		{ echo "The generated files above do not follow from their sources: run 'make generate' and commit the result." >&2; exit 1; }
	@for module in $(MODULES); do (cd $$module && go mod tidy -diff) || \
		{ echo "go.mod or go.sum of $$module is not tidy: run 'go mod tidy' there and commit the result." >&2; exit 1; }; done
	@! git grep -nwE 'TODO|FIXME|XXX|<<<<<<<|>>>>>>>' -- ':!Makefile' ':!.golangci.yml' || \
		{ echo "The lines above are leftovers: finish them, or write an issue and remove them." >&2; exit 1; }

.PHONY: lint
lint: ## Check style and likely mistakes (go vet's checks and gofmt included).
	$(GOLANGCI_LINT) run
	$(ACTIONLINT)
	@for module in $(OURS); do echo "$$module:" && (cd $$module && \
		go tool -modfile=../golangci-lint/go.mod golangci-lint run) || exit 1; done

.PHONY: build
build: ## Build nodegate, kubectl-gate and, on Linux, the programs of the node agent into bin.
	go build -o bin/ ./cmd/...
	ln -sf kubectl-gate bin/kubectl_complete-gate

.PHONY: dist-plugin
dist-plugin: ## Make what krew installs: kubectl-gate for each platform, and its manifest (VERSION=v0.1.0).
	go run ./hack/dist -version '$(VERSION)' -out $(DIST)

.PHONY: image
image: ## Build the container image, without Docker, into bin/image.tar; IMAGE=registry/name:tag pushes it too.
	go run -C hack/tools/image . -source '$(CURDIR)' -out '$(CURDIR)/bin/image' $(if $(IMAGE),-push $(IMAGE))

AGENT := -packages ./cmd/nodegate-agent,./cmd/nodegate-hold -name ghcr.io/nodegate/nodegate-agent

.PHONY: agent-image
agent-image: ## Build the container image of the node agent in the same way, into bin/agent-image.tar.
	go run -C hack/tools/image . -source '$(CURDIR)' -out '$(CURDIR)/bin/agent-image' $(AGENT) $(if $(IMAGE),-push $(IMAGE))

# The program is built first, because 'go run' hides the exit status. Its last lines
# are go test's own output. hack/test/parts.go has the parts and their times.
# TESTFLAGS are its flags: make test-e2e TESTFLAGS='-run Seed -count 1'
define run_tests
@go build -o bin/run-tests ./hack/test
@bin/run-tests $(TESTFLAGS) $(1)
endef

.PHONY: test test-quick test-unit test-cluster test-charts test-e2e test-node test-neighbours test-tools
test: components ## Run all tests, against a real control plane.
	$(call run_tests,all)

test-quick: ## Test what needs no control plane, except e2e, bench and demo; no race detector (2 min).
	$(call run_tests,quick)

test-unit: ## Test packages without tests that need a control plane (7 min).
	$(call run_tests,unit)

test-cluster: components ## Test packages with tests on a control plane, except charts and e2e (5 min).
	$(call run_tests,cluster)

test-charts: components ## Test the Helm chart and deploy/, rendered and installed (4 min).
	$(call run_tests,charts)

test-e2e: components ## Test nodegate as a whole, on control planes of two versions (12 min).
	$(call run_tests,e2e)

test-node: node-components ## Test nodegate with a real kubelet and containerd, as root on Linux (5 min).
	$(call run_tests,node)

# Programs that nodegate is tested beside. The first build of each takes minutes, and prints how
# long: make test-neighbours NEIGHBOURS=descheduler
NEIGHBOURS := descheduler,karpenter,cluster-api,istio-untaint,argocd,flux,cilium-operator-generic

test-neighbours: neighbour-components ## Test nodegate beside other controllers that use taints (9 min).
	$(call run_tests,neighbours -- -args -neighbours=$(NEIGHBOURS))

test-tools: ## Test programs in modules of their own, under hack/tools (1 min).
	$(call run_tests,tools)

# What 'make test-versions' tests, and on which versions of Kubernetes: all that can
# be built, and the packages whose tests depend on it. Those of the chart choose their
# versions themselves, and those of the commands install the newest one's policies.
VERSIONS := $(patsubst testcluster/components/kubernetes-%.mod,%,$(sort $(wildcard testcluster/components/kubernetes-*.mod)))
TESTS    := ./testcluster ./testcluster/cmd/nodegate-cluster ./internal/admission ./internal/crd ./internal/kube/... ./e2e

.PHONY: test-versions
test-versions: ## Test policies and nodegate as a whole on VERSIONS="1.34 1.35 1.36 1.37" (20 min each).
	@hack/test-versions.sh '$(VERSIONS)' -race $(TESTFLAGS) $(TESTS)

# How long each target of 'make fuzz' runs.
FUZZTIME ?= 60s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME; BASE=origin/main only those of what changed, FUZZ=FuzzNode by name.
	go run ./hack/fuzz -fuzztime $(FUZZTIME) $(if $(BASE),-base $(BASE)) '$(FUZZ)'

.PHONY: mutants
mutants: ## Build nodegate with one guard broken at a time: the judge has to catch each; MUTANT=name for one (15 min).
	@$(COMPILE) -components kube-apiserver,etcd -o bin/ ./e2e/judge/cmd/nodegate-mutants
	@bin/nodegate-mutants $(if $(MUTANT),"$(MUTANT)")

# What 'make torture' runs, and for how long.
SEED    := 0
MINUTES := 30

.PHONY: torture
torture: ## Run nodegate while faults are injected: SEED=1 MINUTES=30, PHASES="R1 R3" some of them, OLDER_REVISION=v0.1.0 upgrades from there.
	@$(COMPILE) -components $(RUNNING) -o bin/ ./e2e/torture/cmd/nodegate-torture
	@bin/nodegate-torture -seed $(SEED) -minutes $(MINUTES) $(if $(OLDER_REVISION),-older $(OLDER_REVISION)) $(PHASES)

.PHONY: picture
picture: test-ui ## Take the picture of a report in README and docs anew.
	cp bin/ui/fleet-light.png docs/images/report.png

.PHONY: test-ui
test-ui: ## Open pages of 'kubectl gate report' in Chromium; screenshots are in bin/ui.
	mkdir -p bin/ui
	go test -count=1 ./internal/report -run '^TestSamplePages$$' -pages '$(CURDIR)/bin/ui'
	go build -o bin/run-tests ./hack/test
	cd hack/tools/ui && '$(CURDIR)/bin/run-tests' -out '$(CURDIR)/bin/test' -count=1 . -- \
		-args -pages '$(CURDIR)/bin/ui' -screenshots '$(CURDIR)/bin/ui'

.PHONY: components
components: ## Build the control plane's programs for the tests, once.
	$(COMPILE)
	$(COMPILE) -kubernetes-version $(OLDER) -components kube-apiserver

.PHONY: node-components
node-components: ## Build the programs of a control plane and of a node.
	@$(COMPILE) -components $(RUNNING),kubelet,containerd,containerd-shim-runc-v2,ctr

.PHONY: neighbour-components
neighbour-components: ## Build the programs of a control plane with simulated nodes, and NEIGHBOURS.
	@$(COMPILE) -components $(RUNNING),kwok,$(NEIGHBOURS)

.PHONY: cluster-up
cluster-up: ## Start a control plane with simulated nodes and keep it up until Ctrl-C.
	@$(COMPILE) -components $(RUNNING),kwok -o bin/ ./testcluster/cmd/nodegate-cluster
	@bin/nodegate-cluster up

.PHONY: demo
demo: ## Watch 60 nodes join, be held and open, and get a verdict.
	@$(COMPILE) -components etcd,kube-apiserver,kube-scheduler,controllers -o bin/ ./demo ./cmd/nodegate
	@bin/demo --nodegate bin/nodegate

# The benchmark builds nodegate without cgo, as releases are. Compiling that before keeps it
# out of the benchmark's time.
STATIC := CGO_ENABLED=0 go build -o bin/ ./cmd/nodegate

.PHONY: bench
bench: ## Measure nodegate against the least that its work can cost; writes bench/RESULTS.md.
	@$(COMPILE) -o bin/ ./bench
	@$(STATIC)
	@bin/bench -out bench

.PHONY: bench-quick
bench-quick: ## The same in a few minutes: fewer rounds, smaller fleets; prints the table only.
	@$(COMPILE) -o bin/ ./bench ./cmd/nodegate
	@bin/bench -quick

# Files of other programs, such as "a.yaml b.yaml": docs/performance.md describes them.
PEERS :=

.PHONY: bench-peers
bench-peers: ## Measure other programs that remove taints, and nodegate: PEERS="a.yaml b.yaml"; prints a table.
	@$(COMPILE) -o bin/ ./bench
	@$(STATIC)
	@bin/bench -peers "$$(echo $(PEERS) | tr ' ' ,)"

.PHONY: bench-scale
bench-scale: ## Measure reports of 100,000 pods, and simulated fleets of up to 100,000 nodes; writes bench/scale.
	@$(COMPILE) -o bin/ ./bench
	@$(STATIC)
	@mkdir -p bench/scale
	@bin/bench -scale -out bench/scale

.PHONY: bench-compare
bench-compare: ## Check that no event costs more allocations than bench/allocations.txt says.
	go run -C hack/tools/benchcompare . -source '$(CURDIR)' -baseline '$(CURDIR)/bench/allocations.txt'

.PHONY: bench-baseline
bench-baseline: ## Write bench/allocations.txt anew.
	go run -C hack/tools/benchcompare . -source '$(CURDIR)' -baseline '$(CURDIR)/bench/allocations.txt' -write

.PHONY: release
release: ## Build a release into dist/, with SBOMs and checksums (VERSION=v0.1.0).
	@grep -qx 'appVersion: $(VERSION)' charts/nodegate/Chart.yaml || \
		{ echo "VERSION=$(VERSION) is not the chart's: set version and appVersion in charts/nodegate/Chart.yaml" >&2; exit 1; }
	@changed=$$(git status --porcelain --untracked-files=normal) && test -z "$$changed" || { echo "The files are not those of the commit: commit or remove what 'git status' lists." >&2; exit 1; }
	rm -rf $(DIST)
	$(MAKE) dist dist-plugin
	go run -C hack/tools/image . -source '$(CURDIR)' -version $(VERSION) -out '$(abspath $(DIST))/image'
	go run -C hack/tools/image . -source '$(CURDIR)' -version $(VERSION) -out '$(abspath $(DIST))/agent-image' $(AGENT)
	go run -C hack/tools/release . -dist '$(abspath $(DIST))' -version $(VERSION)

.PHONY: publish
publish: ## Sign what 'make release' built with SIGNING_KEY=file, and push the images to IMAGE=registry/name:tag and registry/name-agent:tag.
	$(if $(SIGNING_KEY),,$(error set SIGNING_KEY to the file with the private key))
	go run -C hack/tools/release . -dist '$(abspath $(DIST))' -key '$(abspath $(SIGNING_KEY))' $(if $(IMAGE),-image $(IMAGE))

.PHONY: vulncheck
vulncheck: ## Check nodegate's programs for known vulnerabilities; RELEASE=1 fails if the database is out of reach.
	@go build -C hack/tools/vulncheck -o '$(CURDIR)/bin/vulncheck' .
	@bin/vulncheck $(if $(RELEASE),-release)

.PHONY: clean
clean: ## Remove what was built here.
	rm -rf bin $(DIST)
