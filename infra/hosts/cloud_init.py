"""What a rented machine does at its first boot, as user data for cloud-init.

It gets the host key that is pinned from then on, a user of its own for the stack's services, and
the timer that ends it. The services' user may not become root: jobs run foreign code, and root of
a machine may read the account's API key from where the timer has it.
"""

from pathlib import Path

import yaml

USER = "trainyard"  # that services and jobs run as
ADMIN = "ubuntu"  # that the cloud's image makes, with sudo
HOME = f"/home/{USER}"
PROMETHEUS = "/usr/bin/prometheus"
TIMER = "/usr/local/sbin/trainyard-ttl"
SCRIPT = Path(__file__).parent / "guest" / "trainyard_ttl.py"
CRON = f"* * * * * root {TIMER}\n"

# The package would start a Prometheus of its own, on the port of ours.
INSTALL_PROMETHEUS = f"""\
test -x {PROMETHEUS} || {{
  printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
    prometheus python3-venv
  rm -f /usr/sbin/policy-rc.d
}}"""
# Containers of the admin's own; the same as being root, which the admin may be anyway.
DOCKER_GROUP = f"getent group docker > /dev/null && usermod -aG docker {ADMIN} || true"


def user_data(*, host_key: str, host_public_key: str, authorized_key: str) -> str:
    """Return the user data of a machine.

    Args:
        host_key: private host key in OpenSSH's format.
        host_public_key: its public half.
        authorized_key: public key that may log in as the services' user; the cloud lets it in as
            the admin.
    """
    config = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key, "ed25519_public": host_public_key},
        "ssh_pwauth": False,
        "disable_root": True,
        "users": [
            "default",
            {
                "name": USER,
                "gecos": "Trainyard services",
                "shell": "/bin/bash",
                "lock_passwd": True,
                "ssh_authorized_keys": [authorized_key],
            },
        ],
        "write_files": [
            {"path": TIMER, "permissions": "0755", "content": SCRIPT.read_text()},
            {"path": "/etc/cron.d/trainyard-ttl", "permissions": "0644", "content": CRON},
        ],
        "runcmd": [DOCKER_GROUP, INSTALL_PROMETHEUS],
    }
    return "#cloud-config\n" + yaml.safe_dump(config, sort_keys=False)
