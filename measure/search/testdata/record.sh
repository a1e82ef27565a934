#!/bin/sh
# Records what MLRsearch 1.2.1 finds on the simulated devices, into mlrsearch.json. Needs python3 and the package index once;
# the tests themselves need neither.
set -eu
cd "$(dirname "$0")"
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet MLRsearch==1.2.1
"$venv/bin/python" record.py > mlrsearch.json.new
mv mlrsearch.json.new mlrsearch.json
