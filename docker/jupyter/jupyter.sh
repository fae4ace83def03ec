#!/bin/sh
# The notebook as a process of this machine: the JupyterLab of the checkout's environment, which is
# first on PATH, with the configuration of the image. It opens the checkout, as who ran `up`.
here=$(dirname "$0")
exec jupyter "$@" --config="$here/jupyter_server_config.py" --allow-root \
  --ServerApp.root_dir="$here/../.." --FileContentsManager.delete_to_trash=True
