"""The first boot of a rented machine, as user data for cloud-init.

It gets the host key that is pinned from then on, its own user for the stack's services, and the
timer that ends it. The services' user may not become root, nor ask the cloud's metadata
service: jobs run foreign code, and root of a machine may read the account's API key from the
timer's file.
"""

import yaml

USER = "trainyard"  # that services and jobs run as
ADMIN = "ubuntu"  # that the cloud's image makes, with sudo
HOME = f"/home/{USER}"
PROMETHEUS = "/usr/bin/prometheus"
TIMER = "/usr/local/sbin/trainyard-ttl"  # arrives by SSH, with its settings
# A cloud's metadata service gives any process of a machine the user data, with the host key, and so
# may a file of the image's: only root may read both, and no container. Routing rules, because not
# every image has iptables; TCP as a number, because not every image has a list of protocols.
# Packets of containers are forwarded: they come from another interface than lo. What networkd or a
# reboot removes is back in a minute.
METADATA = "/usr/local/sbin/trainyard-metadata"
METADATA_SCRIPT = """\
#!/bin/sh
if [ -d /var/lib/cloud/seed ]; then chmod 700 /var/lib/cloud/seed; fi
there="ipproto 6 dport 80 to 169.254.169.254"
ip rule show priority 4948 | grep -q . ||
  ip rule add priority 4948 iif lo uidrange 0-0 $there lookup main
ip rule show priority 4949 | grep -q . || ip rule add priority 4949 $there prohibit
"""
CRON = f"* * * * * root [ ! -x {TIMER} ] || {TIMER}\n* * * * * root {METADATA}\n"

LOG = "/var/log/trainyard-boot.log"  # of the steps below; readable by the services' user
FINISHED = "all steps are done"  # its last line, unless one failed

# cloud-init makes one script of all steps, which would otherwise go on after a failed step.
BEGIN = f"""\
exec > {LOG} 2>&1
chmod 644 {LOG}
set -e
step='the first step'
trap 'status=$?; [ $status = 0 ] || echo "$step failed with status $status"' EXIT"""
# Lets the admin run containers. That equals being root, which the admin may be anyway.
DOCKER_GROUP = f"""\
step='adding {ADMIN} to the group docker'
if getent group docker > /dev/null; then usermod -aG docker {ADMIN}; fi"""
# The package would start its own Prometheus, on the port of ours. Package lists need not be fetched
# where those of the image suffice. The image's own updates may hold the lock for a while.
INSTALL_PROMETHEUS = f"""\
step='installing Prometheus'
if [ ! -x {PROMETHEUS} ]; then
  printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  apt-get update -qq || echo 'apt-get update failed; going on with the lists that are there'
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
    -o DPkg::Lock::Timeout=300 prometheus python3-venv
  rm -f /usr/sbin/policy-rc.d
fi"""
CLOSE_METADATA = f"""\
step='closing the metadata service'
{METADATA}"""
END = f"echo '{FINISHED}'"


def user_data(*, host_key: str, host_public_key: str, authorized_key: str) -> str:
    """Return the user data of a machine with a host key in OpenSSH's format.

    The authorized key may log in as the services' user; the cloud lets it in as the admin.
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
            {"path": METADATA, "permissions": "0755", "content": METADATA_SCRIPT},
            {"path": "/etc/cron.d/trainyard-ttl", "permissions": "0644", "content": CRON},
        ],
        "runcmd": [BEGIN, CLOSE_METADATA, DOCKER_GROUP, INSTALL_PROMETHEUS, END],
    }
    return "#cloud-config\n" + yaml.safe_dump(config, sort_keys=False)
