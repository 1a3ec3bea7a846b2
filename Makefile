# Two commands on a fresh machine: `make demo` and `make test`. Each does its own set-up.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: demo test check format bench-prepare bench-rows bench-memory bench-classify bench-fasttext-recipe bench-calibration bench-quantize bench-audit bench-unlabelled bench-lstm bench-lstm-accuracy bench-spark bench-average bench-embed bench-balance bench-crews bench-crew-speed bench-crew-work bench-links bench-kills bench-hosts bench-container bench-start bench-stream bench-stream-sources bench-server bench-serve bench-serve-fuzz bench-predict-files bench-s3-kills bench-storage bench-plan kernels reference clean

# Prepare real reviews, train on them, judge the model and use it.
demo: $(VENV)/.demo
	BIN=$(BIN) tools/demo.sh

# Lint, types, import contracts, then all tests: two files at a time, since what the tests of a file share
# is made once by each process. Which come first is said in tests/conftest.py.
test: $(VENV)/.test check
	@tools/system_packages.sh chromium:chromium || echo "no browser can be installed here: tests of pages skip" >&2
	@tools/system_packages.sh ip:iproute2 || echo "no iproute2 can be installed here: tests of two hosts skip" >&2
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# `prepare` beside its peers, which live in an environment of their own.
bench-prepare: $(VENV)/.test .venv-peers/.ready
	$(BIN)/python bench/prepare.py --peers .venv-peers/bin/python

# Random rows from the store.
bench-rows: $(VENV)/.demo
	$(BIN)/python bench/rows.py

# 4 GB of input within 1 GB of memory.
bench-memory: $(VENV)/.demo
	$(BIN)/python bench/memory.py

# Our default classifier beside tuned peers, on every real set in DATA: hours. Runs that the record has are kept;
# OPTIONS=--ours-only repeats ours alone.
DATA ?= ../shared/data
bench-classify: $(VENV)/.test .venv-fasttext/.ready .venv-vw/.ready
	$(BIN)/python bench/classify.py --fasttext .venv-fasttext/bin/python --vw .venv-vw/bin/python --data $(DATA) $(OPTIONS)

# fastText's recipe in fastText and in ours.
bench-fasttext-recipe: $(VENV)/.test .venv-fasttext/.ready
	$(BIN)/python bench/fasttext_recipe.py --peers .venv-fasttext/bin/python --data $(DATA)

# Whether probabilities and intervals hold what they say.
bench-calibration: $(VENV)/.test
	$(BIN)/python bench/calibration.py --data $(DATA)

# What quantised models lose.
bench-quantize: $(VENV)/.test
	$(BIN)/python bench/quantize.py --data $(DATA)

# How many planted label errors are found.
bench-audit: $(VENV)/.test
	$(BIN)/python bench/audit.py --data $(DATA)

# What unlabelled texts add.
bench-unlabelled: $(VENV)/.test
	$(BIN)/python bench/unlabelled.py --data $(DATA)

# lstm beside PyTorch's.
bench-lstm: $(VENV)/.test
	$(BIN)/python bench/lstm.py --data $(DATA)

# What lstm learns from scratch on real reviews.
bench-lstm-accuracy: $(VENV)/.test
	$(BIN)/python bench/lstm_accuracy.py --data $(DATA)

# skipgram beside gensim's and fastText's; then the job of a study, charlstm, and the PIP loss.
bench-embed: $(VENV)/.test .venv-fasttext/.ready
	$(BIN)/python bench/embed.py --peers .venv-fasttext/bin/python --data $(DATA)
	$(BIN)/python bench/embed_books.py --data $(DATA)

# prepare on Spark, beside other ways to use it.
bench-spark: $(VENV)/.test
	$(BIN)/python bench/spark.py --data $(DATA)

# Averages of partitions: Iris as in a study, and IMDB beside one process.
bench-average: $(VENV)/.test
	$(BIN)/python bench/average.py --data $(DATA)

# How good crews are beside one process.
bench-crews: $(VENV)/.test
	$(BIN)/python bench/crews.py --data $(DATA)

# How fast crews on one machine are beside one process, and what each worker takes.
bench-crew-speed: $(VENV)/.test
	$(BIN)/python bench/crew_speed.py --data $(DATA)

bench-crew-work: $(VENV)/.test
	$(BIN)/python bench/crew_work.py --data $(DATA)

# Two machines over links of several speeds, in network namespaces; as root.
bench-links: $(VENV)/.test
	tools/system_packages.sh ip:iproute2
	$(BIN)/python bench/links.py --data $(DATA)

# Crews of workers of unequal speed.
bench-balance: $(VENV)/.test
	$(BIN)/python bench/balance.py

# Crews whose workers are killed.
bench-kills: $(VENV)/.test
	$(BIN)/python bench/kills.py

# Two hosts in network namespaces; as root.
bench-hosts: $(VENV)/.test
	tools/system_packages.sh ip:iproute2
	$(BIN)/python bench/hosts.py

# The steps of the Dockerfile, and a job in what they make; as root.
bench-container: $(VENV)/.test
	$(BIN)/python bench/container.py

# Learning from a stream beside training from files; and its memory, for ten minutes.
bench-stream: $(VENV)/.test
	PYTHONPATH=. $(BIN)/python bench/stream.py --data $(DATA)

# The parameter server: its speed beside one process, slow and killed workers, emulated machines.
bench-server: $(VENV)/.test
	$(BIN)/python bench/server.py --data $(DATA)
	tools/system_packages.sh ip:iproute2
	$(BIN)/python bench/server_links.py --data $(DATA)

# The HTTP service beside FastAPI + fastText, by wrk; then ten minutes of overload.
bench-serve: $(VENV)/.test
	tools/system_packages.sh wrk:wrk
	PYTHONPATH=. $(BIN)/python bench/serve.py --data $(DATA)

# The HTTP service under 10,000 requests made from its description, and 2,000 broken ones.
bench-serve-fuzz: $(VENV)/.test
	PYTHONPATH=. $(BIN)/python bench/serve_fuzz.py

# Whole files through predict, beside fastText's.
bench-predict-files: $(VENV)/.test
	$(BIN)/python bench/predict_files.py --data $(DATA)

# Writers to S3 that are killed; and a dataset read from a disk, a mount and S3.
bench-s3-kills: $(VENV)/.test
	$(BIN)/python bench/s3_kills.py

bench-storage: $(VENV)/.test
	tools/system_packages.sh fusermount3:fuse3
	$(BIN)/python bench/storage.py

# What plan predicts beside what is measured, also over a slow link. Needs root.
bench-plan: $(VENV)/.test
	tools/system_packages.sh ip:iproute2
	PYTHONPATH=. $(BIN)/python bench/plan.py --data $(DATA)

# What starting costs: a wheel is built, and installed in a new environment.
bench-start: $(VENV)/.test
	$(BIN)/python bench/start.py

# Messages a second of every kind of stream.
bench-stream-sources: $(VENV)/.test
	PYTHONPATH=. $(BIN)/python bench/stream_sources.py

# All kernels ahead, as in a wheel, for those who start often: four minutes. Of what is changed later, each
# is compiled on its first call again.
kernels: $(VENV)/.demo
	$(BIN)/python tools/compile_kernels.py src/manyhands/kernels/compiled

# The reference pages and the tables in the README, from their sources.
reference: $(VENV)/.test
	$(BIN)/python tools/make_reference.py

clean:
	rm -rf $(VENV) .venv-peers .venv-fasttext .venv-vw data runs build src/manyhands/kernels/compiled

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[demo]' || $(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[demo,s3,test]'
	@touch $@ $(VENV)/.demo

.venv-peers/.ready: bench/peers/requirements.txt
	tools/system_packages.sh java:default-jre-headless
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --requirement bench/peers/requirements.txt
	@touch $@

.venv-fasttext/.ready: bench/peers/requirements-fasttext.txt
	tools/system_packages.sh g++:g++
	$(PYTHON) -m venv .venv-fasttext
	.venv-fasttext/bin/pip install --quiet --requirement bench/peers/requirements-fasttext.txt
	@touch $@

.venv-vw/.ready: bench/peers/requirements-vw.txt
	$(PYTHON) -m venv .venv-vw
	.venv-vw/bin/pip install --quiet --requirement bench/peers/requirements-vw.txt
	@touch $@
