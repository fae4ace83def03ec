"""Two secrets that are drawn once: drawn again, they would differ."""

import pulumi

from cluster.secret import Secret
from infra.machines.host_key import HostKey

pulumi.export("secret", Secret("token", 16).value)
pulumi.export("key", HostKey("key").publicKey)
