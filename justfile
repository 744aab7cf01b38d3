# Shortcuts for people; README and .ci/run call the same commands directly.

# What there is.
default:
    @just --list

# Both planes over the example, no cluster.
up dir="examples/canary":
    cargo run -p firth -- up {{dir}}

# All tests, those on a real API server included; arguments go to cargo test.
test *arguments:
    ./test {{arguments}}

# What CI runs.
ci:
    .ci/run

# The long form of it: properties, soak, large attacks, fuzz targets, mutants, advisories; `just nightly fuzz` runs one step.
nightly *arguments:
    .ci/nightly {{arguments}}

# Every interleaving of the writer and the readers of a proxy's tables.
loom:
    .ci/loom

# Each fuzz target for a minute, or those that are named: `FIRTH_FUZZ_SECONDS=600 just fuzz paths`.
fuzz *targets:
    .ci/fuzz {{targets}}

# Formats, lints and checks the documentation.
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Bans, licences and sources of dependencies.
deny:
    .ci/deny

# Lints the chart and looks at what it renders.
chart:
    charts/test.sh

# Release binaries with a profile: `just release out`.
release *folder:
    images/release {{folder}}
