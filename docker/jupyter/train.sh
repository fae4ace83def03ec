#!/bin/sh
# train: the client of the checkout, for this notebook's stack; as jupyter-page, its read-only page. It
# takes a private file only, and the container's is one that its user cannot change.
set -e
case "$0" in
*jupyter-page) module=trainyard.client.ui.service ;;
*) module=trainyard.client ;;
esac
outputs="$HOME/.trainyard-outputs.json"
install -m 0600 /etc/trainyard/outputs.json "$outputs"
TRAINYARD_OUTPUTS="$outputs" PYTHONPATH=/usr/local/lib/trainyard exec python -m "$module" "$@"
