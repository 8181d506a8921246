# The ways in: `make run` measures the flash here, `make test` shows that the tool can be believed.

CARGO ?= cargo
PREFIX ?= /usr/local
BINARY = target/release/flashwright
QUICK_BINARY = target/quick/flashwright
# Built with the system's OpenSSL where its headers are, else with one that is compiled from source, which takes minutes.
# Expanded when it is used: `tls` may have installed the headers by then.
QUICK = $(shell pkg-config --exists openssl 2>/dev/null && echo OPENSSL_NO_VENDOR=1)
# Debian packages that tests use beside cargo: peers to compare with and to talk to, and file systems to make.
PACKAGES = fio e2fsprogs xfsprogs btrfs-progs f2fs-tools dosfstools util-linux dmsetup python3 \
  nbdkit libnbd-bin strace qemu-utils gnutls-bin gfortran python3-venv libssl-dev pkg-config

# One thing after another, so that output and measurements are not mixed up under -j.
.NOTPARALLEL:
.PHONY: picture minutes wheel package fio-compare left-out run quick fresh build build-debug static tls test test-again test-explore test-tools test-moto test-build test-cargo test-hostile test-slurm test-postgres test-mpi test-package test-crash test-python test-torch test-lab test-lint lint format tools clippy doc deny bench install clean help

help: ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

run: quick ## Build the binary, quickly, and measure this directory's flash: two minutes, then report.html
	./$(QUICK_BINARY) sweep

picture: quick ## Draw the README's picture, docs/report.svg: the report of the papers' own node, simulated
	rm -rf $(TARGET)/picture
	./$(QUICK_BINARY) sweep --machine dash-io-node --seed 1 --output $(TARGET)/picture
	./$(QUICK_BINARY) report $(TARGET)/picture --output docs/report.svg

fresh: ## Measure make run from a fresh clone without caches: minutes of each step, size of the binary
	tools/fresh

quick: tls
	$(QUICK) $(CARGO) build --profile quick --locked -p flashwright

build: tls ## Build the release binary; as root on Debian, with the headers of the system's OpenSSL
	$(QUICK) $(CARGO) build --release --locked -p flashwright

# Without the headers, which only root can install, OpenSSL is compiled: it works as well, and takes longer.
tls:
	@if pkg-config --exists openssl 2>/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then \
	  exit 0; \
	fi; \
	echo "make build: installing libssl-dev and pkg-config, so that OpenSSL need not be compiled"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libssl-dev pkg-config >/dev/null; } </dev/null \
	  || echo "make build: could not install them; OpenSSL is compiled, which takes some minutes more"

# The one build of all that runs here: examples, so that they cannot rot, and the binary for the tests, the hostile kit and the lab's
# guest. Cargo compiles a crate once for each set of its features, and those depend on what is selected: so all select the same.
TARGET = $(or $(CARGO_TARGET_DIR),target)
DEBUG_BINARY = $(TARGET)/debug/flashwright
build-debug:
	$(QUICK) $(CARGO) build --workspace --bins --examples --locked

# A failure of one part is not to hide another, nor what was left out; nor what was not asked for.
ALL = build lint lab hostile package slurm postgres python torch mpi cargo
PARTS = build cargo hostile python
ifeq ($(PARTS),all)
override PARTS := $(ALL)
endif
test: test-tools ## Run all tests; as root on Debian, install what they use first
	@rm -rf $(NOTES); python3 tools/tests.py space $(TARGET); for part in $(PARTS); do $(MAKE) --no-print-directory test-$$part; done; \
	python3 tools/tests.py summary $(NOTES) $(PARTS) -- $(filter-out $(PARTS),$(ALL))

minutes: ## Write how long each part of the last tests took into docs/testing.md
	python3 tools/tests.py minutes $(NOTES) docs/testing.md

# How each part went, what it left out and why: tools/tests.py.
NOTES = $(TARGET)/tests
NOTED = python3 tools/tests.py run $(NOTES)/$(@:test-%=%)

# `make test` draws the same random cases every time (.cargo/config.toml).
SEED =
TIME = 1s
test-explore: test-moto build-debug ## Run the tests with new random cases, again and again for TIME=30m; SEED=N has those of a round again
	rm -f $(NOTES)/explore-*; if [ -x $(MOTO)/bin/python3 ]; then export FLASHWRIGHT_MOTO_PYTHON=$(MOTO)/bin/python3; fi; \
	$(QUICK) python3 tools/tests.py explore $(NOTES) '$(TIME)' '$(SEED)' $(CARGO) test --workspace --locked

TIMES = 20
test-again: ## Run the tests of the crates TIMES=20 times in a row, for a machine that does something else meanwhile
	for n in $$(seq $(TIMES)); do \
	  $(MAKE) --no-print-directory test-cargo || exit 1; \
	  echo "make test-again: $$n of $(TIMES) in a row passed; load $$(cut -d ' ' -f 1-3 /proc/loadavg)"; \
	done

# Tests that need a tool which is missing say so and pass over that part; here nothing is to be passed over.
test-tools:
	@missing=""; \
	for tool in fio mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.f2fs mkfs.vfat losetup setpriv dmsetup python3 \
	    nbdkit nbdinfo nbdcopy nbdfuse strace qemu-img psktool certtool gfortran; do \
	  command -v $$tool >/dev/null 2>&1 || [ -x /usr/sbin/$$tool ] || [ -x /sbin/$$tool ] || missing="$$missing $$tool"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "make test: installing $(PACKAGES), because these are missing:$$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGES) >/dev/null; } </dev/null \
	    || echo "make test: could not install them; tests that need them say what they leave out"; \
	else \
	  echo "make test: missing$$missing; tests that need them say what they leave out"; \
	fi

# A server that speaks S3, for tests: where python3 has none, in an environment of its own.
MOTO = $(abspath $(TARGET))/moto

test-moto:
	@if python3 -c 'import moto.server, flask' 2>/dev/null || [ -x $(MOTO)/bin/python3 ]; then exit 0; fi; \
	{ python3 -m venv $(MOTO) && $(MOTO)/bin/pip install -q --disable-pip-version-check 'moto[server]>=5,<6'; } </dev/null \
	  || { rm -rf $(MOTO); echo "make test: moto could not be installed; tests against a server that speaks S3 are left out"; }

# What the other parts wait for, so that it is not counted to the first of them.
test-build:
	$(NOTED) sh -c '$(MAKE) --no-print-directory build-debug && $(QUICK) $(CARGO) test --workspace --locked --no-run'

# Several programs at once (tools/programs.py), and all of them: one failure is not to hide another.
test-cargo: test-moto build-debug
	if [ -x $(MOTO)/bin/python3 ]; then export FLASHWRIGHT_MOTO_PYTHON=$(MOTO)/bin/python3; fi; \
	$(QUICK) python3 tools/tests.py crates $(NOTES)/cargo $(CARGO) test --workspace --locked

# Beside what the tests of the crates do: other programs against the binary, as they would meet it.
test-hostile: build-debug ## Attack the servers behind each of their doors, and see that they serve on
	$(NOTED) python3 tools/hostile --binary $(DEBUG_BINARY)

# What MPI takes: a launcher, a library with its headers, and libclang, by which Rust reads them.
MPI_PACKAGES = openmpi-bin libopenmpi-dev libclang-dev
MPI_BINARY = $(TARGET)/mpi/flashwright

# With the features of all other builds (those of tests, which examples select) and one more, so that only two crates are compiled again.
test-mpi: ## Try several processes under a real mpirun (docs/mpi.md)
	@if ! command -v mpicc >/dev/null 2>&1 || ! ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "make test-mpi: installing $(MPI_PACKAGES)"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(MPI_PACKAGES) >/dev/null; } </dev/null || true; \
	  fi; \
	fi
	@if command -v mpicc >/dev/null 2>&1 && ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1; then \
	  $(NOTED) sh -c '$(QUICK) $(CARGO) build --workspace --bins --examples --features flashwright/mpi --locked \
	    && mkdir -p $(dir $(MPI_BINARY)) && cp $(DEBUG_BINARY) $(MPI_BINARY) && python3 tools/mpi --binary $(MPI_BINARY)'; \
	else \
	  $(NOTED) echo "SKIP mpi: no mpicc or no libclang (Debian: $(MPI_PACKAGES))"; \
	fi

# Debian's Slurm, and the Lua that its scripts are tried with. What these packages start by themselves is not used.
SLURM_PACKAGES = slurmctld slurmd slurm-client munge lua5.3
test-slurm: build-debug ## Run jobs with burst buffers on a slurmctld and two slurmds; as root on Debian, install them first
	@if { command -v slurmctld && command -v lua; } >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then exit 0; fi; \
	echo "make test-slurm: installing $(SLURM_PACKAGES)"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SLURM_PACKAGES) >/dev/null; } </dev/null \
	  || echo "make test-slurm: could not install them"
	$(NOTED) python3 tools/slurm --binary $(DEBUG_BINARY)

# PostgreSQL 15 with Q3C. The cluster that Debian's package makes by itself is not used.
POSTGRES_PACKAGES = postgresql-15 postgresql-15-q3c
# The tests of the crate, which other rings leave out where there is no PostgreSQL, then the binary as a user runs it.
test-postgres: build-debug ## Try the databases on a real PostgreSQL 15 with Q3C; as root on Debian, install them first (docs/postgres.md)
	@if [ -e /usr/share/postgresql/15/extension/q3c.control ] || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then exit 0; fi; \
	echo "make test-postgres: installing $(POSTGRES_PACKAGES)"; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(POSTGRES_PACKAGES) >/dev/null; } </dev/null \
	  || echo "make test-postgres: could not install them"
	$(NOTED) sh -c 'failed=0; \
	  $(QUICK) $(CARGO) test --workspace --locked --test postgres -- --show-output --test-threads=2 || failed=1; \
	  python3 tools/postgres --binary $(DEBUG_BINARY) || failed=1; exit $$failed'

# The same tests as in `make test`, which takes a sample; and strace as a second opinion.
test-crash: ## Kill and fail a move at every call it makes, and cut the power at hundreds of moments: hours
	FLASHWRIGHT_CRASH=full $(QUICK) $(CARGO) test -p flashwright-stage-service --test crash --test crash-nfs --locked --no-fail-fast
	$(QUICK) $(CARGO) build -p flashwright-stage-service --example move --locked
	python3 tools/crash/inject.py --full

left-out: ## Leave out each sync and each check of a move alone, show what is lost, and print the table of both
	FLASHWRIGHT_LEFT_OUT=1 $(QUICK) $(CARGO) test -p flashwright-stage-service --test crash --locked left_out:: -- --nocapture --test-threads=1

static: ## Build the binary against musl's C library, as one static file without S3 (target/x86_64-unknown-linux-musl)
	$(CARGO) build --release --locked --target x86_64-unknown-linux-musl -p flashwright --no-default-features

# The wheel as a user gets it, but for its profile, the features of its dependencies (tools/cargo-for-wheel) and the system's
# OpenSSL, which is not bundled, in an environment of its own. What cargo has built is used again.
PYTHON ?= python3
WHEEL = $(TARGET)/python

wheel:
	rm -rf $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)/build
	$(WHEEL)/build/bin/pip install -q --disable-pip-version-check "$(MATURIN)"
	$(QUICK) CARGO=$(abspath tools/cargo-for-wheel) $(WHEEL)/build/bin/maturin build --profile dev --auditwheel skip --out $(WHEEL)/wheels

# maturin, which builds the wheel: tools/cargo-for-wheel knows its command line.
MATURIN = maturin>=1.9.4,<2
test-python: test-moto ## Build the wheel of the Python package, install it in a clean virtual environment, test it there
	if [ -x $(MOTO)/bin/python3 ]; then export FLASHWRIGHT_MOTO_PYTHON=$(MOTO)/bin/python3; fi; \
	$(NOTED) sh -c '$(MAKE) --no-print-directory wheel && $(PYTHON) -m venv $(WHEEL)/clean \
	  && $(WHEEL)/clean/bin/pip install -q --disable-pip-version-check pytest mypy typing_extensions pandas polars $(WHEEL)/wheels/*.whl \
	  || { echo "FAIL python: the wheel is not built or cannot be installed"; exit 1; }; failed=0; \
	  (cd python/tests && $(abspath $(WHEEL))/clean/bin/mypy --strict --config-file= -p flashwright) \
	    && echo "ok   python: types" || { echo "FAIL python: types"; failed=1; }; \
	  $(WHEEL)/clean/bin/pytest -q -rfEs -p no:cacheprovider --import-mode=importlib --basetemp=$(WHEEL)/scratch --ignore=python/tests/dcp python/tests \
	    || failed=1; exit $$failed'

# The wheel of `test-python`, or one built here, in an environment of its own with PyTorch: 0.6 GB are downloaded, 1.5 GB stay.
TORCH = $(TARGET)/torch

test-torch: ## Test checkpoints of PyTorch, on the CPU and with gloo, in an environment of its own (0.6 GB are downloaded)
	@if ! $(PYTHON) tools/torch_env.py $(TORCH) </dev/null; then \
	  $(NOTED) echo "SKIP checkpoints of PyTorch: it could not be installed (tools/torch_env.py)"; exit 0; \
	fi; \
	set -e; if ! ls $(WHEEL)/wheels/*.whl >/dev/null 2>&1; then $(MAKE) --no-print-directory wheel; fi; \
	$(TORCH)/bin/pip install -q --disable-pip-version-check --no-deps --force-reinstall $(WHEEL)/wheels/*.whl; \
	$(TORCH)/bin/pip install -q --disable-pip-version-check pytest; \
	$(NOTED) $(TORCH)/bin/pytest -q -rfEs -p no:cacheprovider --import-mode=importlib --basetemp=$(TORCH)/scratch python/tests/dcp

test-lab: ## Run this binary in an emulated machine with sixteen NVMe drives, md, LVM and btrfs (docs/lab.md)
	TESTS_REPEAT=0 $(NOTED) python3 tools/lab

test-lint:
	TESTS_REPEAT=0 $(NOTED) $(MAKE) --no-print-directory --keep-going lint

# A step of lint, and a line of it that tools/tests.py counts.
step = @echo '$(1)'; if $(1); then echo "ok   lint: $@"; else echo "FAIL lint: $@"; exit 1; fi
lint: format deny tools clippy doc ## Formatting, clippy, documentation, licences, and whether what runs the tests tells the truth of them

format:
	$(call step,$(CARGO) fmt --all --check)

tools:
	$(call step,python3 tools/test_tests.py)

clippy:
	$(call step,$(QUICK) $(CARGO) clippy --workspace --all-targets --locked -- -D warnings)

doc:
	$(call step,$(QUICK) RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked)

# Licences and sources do not change by themselves, so this needs no network; advisories do, and are not
# part of it. cargo-deny takes longer to build than this workspace, so it is used where it is.
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  if $(CARGO) deny --offline check licenses bans sources; then echo "ok   lint: $@"; else echo "FAIL lint: $@"; exit 1; fi; \
	else \
	  echo "SKIP licences: cargo-deny is not installed (cargo install cargo-deny)"; \
	fi

bench: build quick ## Ratios against peers (fio, nbdkit, qemu, nbdcopy, cp, rsync, rclone, dcp, IOR), of volumes, of hosts and of the profiles, with the machine they were measured on
	$(QUICK) $(CARGO) build --release --locked -p flashwright-volume -p flashwright-sweep -p flashwright-external -p flashwright-graph --examples
	python3 tools/ratios

PACKAGES_OUT = $(TARGET)/packages
package: build ## Make a .deb, an archive and the wheel, with manual pages and completions (target/packages); as root on Debian, try the .deb
	rm -rf $(PACKAGES_OUT)
	tools/package $(BINARY) $(PACKAGES_OUT)
	$(PYTHON) -m venv $(WHEEL)/build
	$(WHEEL)/build/bin/pip install -q --disable-pip-version-check "$(MATURIN)"
	$(QUICK) $(WHEEL)/build/bin/maturin build --release --auditwheel skip --out $(PACKAGES_OUT)
	tools/package --try $(PACKAGES_OUT)/*.deb

# The binary of the tests without its symbols, hardly compressed: what packages hold and how they are used does not depend on either.
PACKAGE_TRIED = $(TARGET)/package-tried
test-package: build-debug ## Make the packages of the binary of the tests; as root on Debian, install and use the .deb in a bare root
	@if ! command -v debootstrap >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "make test-package: installing debootstrap"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null; } </dev/null || true; \
	fi
	@rm -rf $(PACKAGE_TRIED); mkdir -p $(PACKAGE_TRIED); strip -o $(PACKAGE_TRIED)/flashwright $(DEBUG_BINARY)
	@export XZ_OPT=-0 DPKG_DEB_COMPRESSOR_LEVEL=0; \
	$(NOTED) sh -c 'tools/package $(PACKAGE_TRIED)/flashwright $(PACKAGE_TRIED) && echo "ok   package: made" && tools/package --try $(PACKAGE_TRIED)/*.deb'; \
	code=$$?; rm -rf $(PACKAGE_TRIED); exit $$code

fio-compare: build-debug ## Compare what fio and flashwright say of the same job files; EXAMPLES=DIRECTORY: which of fio's own files run
	tools/fio-compare $(if $(EXAMPLES),examples $(EXAMPLES),jobs) --flashwright $(DEBUG_BINARY)

install: build ## Install the binary, manual pages, completions, and units for stage serve, under PREFIX (/usr/local)
	install -Dm755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/flashwright
	$(BINARY) pages $(TARGET)/pages >/dev/null
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(TARGET)/pages/man1/*.1
	install -Dm644 $(TARGET)/pages/completions/flashwright.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flashwright
	install -Dm644 $(TARGET)/pages/completions/_flashwright $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flashwright
	install -Dm644 $(TARGET)/pages/completions/flashwright.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flashwright.fish
	install -d $(DESTDIR)$(PREFIX)/share/doc/flashwright
	cp -R docs examples machines contrib README.md CHANGELOG.md $(DESTDIR)$(PREFIX)/share/doc/flashwright/
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system dist/systemd/flashwright-stage@.service dist/systemd/flashwright-stage@.socket
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/user dist/systemd/user/*

clean: ## Remove what was built
	$(CARGO) clean
