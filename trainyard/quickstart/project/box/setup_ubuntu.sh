#!/usr/bin/env bash
# Makes a Linux machine, or a WSL 2 with systemd, a GPU box: bash setup_ubuntu.sh
# Written for Ubuntu; for another distribution change the line with apt-get. It can run twice.
set -euo pipefail

# Of the machine that you develop on, as `train init` found it: Ray's client needs the same.
ray=2.60.0
minor=3.11 # of Python
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

if [ "$(id -u)" = 0 ]; then
  echo "error: run this as the user who trains, not as root: it asks for sudo itself" >&2
  exit 1
fi
if [ "$(ps -p 1 -o comm=)" != systemd ]; then
  echo "error: systemd does not run here; in WSL put 'systemd=true' below '[boot]' in" \
    "/etc/wsl.conf, run 'wsl --shutdown' in Windows, and start this again" >&2
  exit 1
fi
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo missing)
if [ "$found" != "$minor" ]; then
  echo "error: $python is $found here, and the machine that you develop on has Python $minor: install" \
    "it, then run PYTHON=python$minor bash $0" >&2
  exit 1
fi
sudo apt-get update
sudo apt-get install -y openssh-server
"$python" -c 'import ensurepip' 2>/dev/null || sudo apt-get install -y "python$minor-venv"
"$python" -m venv "$HOME/.ray"
"$HOME/.ray/bin/pip" install uv # quicker: the packages are gigabytes
"$HOME/.ray/bin/uv" pip install --python "$HOME/.ray" \
  "ray[default,train,tune,client]==$ray" torch scikit-learn transformers
mkdir -p "$HOME/.config/systemd/user"
cp "$here/ray.service" "$HOME/.config/systemd/user/"
sudo loginctl enable-linger "$USER" # so that it starts without a login
systemctl --user daemon-reload
systemctl --user enable --now ray
"$HOME/.ray/bin/python" -c 'import torch; print(torch.cuda.device_count(), "GPUs can be used")'
echo "host key: $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)"
