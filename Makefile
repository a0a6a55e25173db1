# make demo     train an agent, evaluate it beside a random one, draw its curve
# make test     format, lint, types, tests: what every commit must pass
# make thorough further cases of some tests, with each memory, and long tests of clusters and of the site
#               (minutes)
# make docs     these pages as a site in build/docs, with nothing fetched while it is read
# make faults   fault injection: random kills, signals, full disks (an hour or two)
# make fuzz     ten thousand random command lines, files and run folders, 500 random environments, and a
#               thousand damages of each file of a run (half an hour)
# make memory-gym  install Memory Gym where its own pins would not
# make gates    do the presets learn as well as they did? five seeds of ten tasks (ten minutes)
# make leaderboard  runs studies/memories.yaml, and prints its tables (half a day; resumes)
# make paper    all of studies/ but the leaderboard, with a report and an archive of the runs of each in docs/results (a day; resumes)
# make bench    recollect beside Stable-Baselines3 on this machine (half an hour)

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# By every core, where pip compiles on one; not what nothing here imports. Templates in a few packages are no
# Python: what fails stays as it is.
COMPILE := $(BIN)/python -m compileall -q -q -j 0 -x '/tests?/|/(transformers/models|ray/(rllib|data|serve))/' .venv/lib || true

.PHONY: demo test thorough check docs faults fuzz memory-gym gates leaderboard paper bench clean

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv --upgrade-deps .venv
	$(INSTALL) torch
	$(INSTALL) -e '.[plot,video]'
	$(COMPILE)
	touch $@

# Holds all of .venv/core, and does not wait for it: the package would be built twice.
.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv --upgrade-deps .venv
	$(INSTALL) torch
	$(INSTALL) -e '.[plot,video,fast,minigrid,popgym,dev]'
	touch .venv/core
	$(MAKE) memory-gym
	$(COMPILE)
	touch $@

# Its package asks for a Gymnasium and a pygame of 2023; it runs with today's, so they stay.
memory-gym: .venv/core
	$(INSTALL) --no-deps memory-gym

.venv/bench: .venv/dev
	$(INSTALL) -e '.[plot,video,fast,minigrid,popgym,dev,bench]'
	touch $@

.venv/docs: .venv/core
	$(INSTALL) -e '.[plot,video,docs]'
	touch $@

demo: .venv/core
	$(BIN)/recollect demo

test: .venv/dev check
	$(BIN)/python -m pytest -m "not faults and not timing and not thorough" -n 2 --dist worksteal
	$(BIN)/python -m pytest -m "timing and not faults" $$(grep -rl --include='*.py' mark.timing tests)

thorough: .venv/dev
	$(BIN)/python -m pytest -m thorough -n 2 --dist worksteal

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers auto

docs: .venv/docs
	$(BIN)/sphinx-build -q -W --keep-going -n -b html -d build/doctrees docs build/docs
	@echo build/docs/index.html

faults: .venv/dev
	$(BIN)/python -m pytest -m faults tests/faults/test_kills.py -n 2 --dist worksteal
	$(BIN)/python -m pytest -m faults --ignore tests/faults/test_kills.py

fuzz: .venv/dev
	FUZZ_CASES=10000 MUTANTS=1000 $(BIN)/python -m pytest tests/fuzz tests/run/test_corruption.py tests/tuning/test_journal.py tests/reporting/test_damage.py -n 2

gates: .venv/dev
	$(BIN)/python -m benchmarks.gates

# Runs of the archives count as finished; remove these to train them again.
leaderboard: .venv/dev
	$(BIN)/python -m benchmarks.archive --restore docs/results/memories/*.zip
	$(BIN)/recollect compare studies/memories.yaml --out runs/paper --report docs/results/memories
	$(BIN)/python -m benchmarks.archive docs/results/memories/report.json --by-task -o docs/results/memories
	$(BIN)/python -m benchmarks.leaderboard --plot docs/images/leaderboard.svg
	$(BIN)/python -m benchmarks.tables

# A study that fails does not stop the others; the last line names those that failed. Without the trap
# Ctrl-C would end one study and begin the next.
paper: .venv/dev
	trap 'exit 130' INT TERM; failed=; \
	$(MAKE) runs/gpt2_bytes || failed=" pretraining"; \
	for study in $(filter-out studies/memories.yaml,$(wildcard studies/*.yaml)); do \
	  name=$$(basename $$study .yaml); results=docs/results/$$name; \
	  $(BIN)/recollect compare $$study --out runs/paper --report $$results \
	  && $(BIN)/python -m benchmarks.archive $$results/report.json -o $$results/runs.zip \
	  || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# The weights that studies/gpt2ppo_pretrained.yaml begins with.
runs/gpt2_bytes: | .venv/dev
	$(BIN)/python -m benchmarks.pretrain --out $@

bench: .venv/bench
	$(BIN)/python -m benchmarks.peers

clean:
	rm -rf .venv build *.egg-info
