"""Who is who in the cluster: its certificate authority, certificates, tokens, kubeconfig files."""

import base64
import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PORT = 6443
SERVICE = "10.96.0.1"  # of the API server, for pods: the first address of services
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
DAYS = 2
EVERYTHING = "system:masters"  # the group that may do all
ADMIN, NOBODY = "admin", "nobody"


def make(folder: Path, address: str) -> None:
    """Write all keys, certificates and tokens, and a kubeconfig with the contexts admin and nobody.

    The folder is private, the address that of the API server.
    """
    authority, key = _certificate("trainyard-test", None, None)
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / "ca.key", _pem(key))
    alternatives = [
        *(x509.IPAddress(ipaddress.ip_address(one)) for one in (address, SERVICE, "127.0.0.1")),
        *(x509.DNSName(one) for one in NAMES),
    ]
    for name, group, names in (
        ("apiserver", "", alternatives),
        ("kubelet-client", EVERYTHING, []),
    ):
        issued, own = _certificate(name, authority, key, group, names)
        _write(folder / f"{name}.crt", issued.public_bytes(serialization.Encoding.PEM))
        _write(folder / f"{name}.key", _pem(own))
    signer = ec.generate_private_key(ec.SECP256R1())
    _write(folder / "accounts.key", _pem(signer))
    tokens = {ADMIN: secrets.token_hex(16), NOBODY: secrets.token_hex(16)}
    users = f"{tokens[ADMIN]},admin,admin,{EVERYTHING}\n{tokens[NOBODY]},nobody,nobody\n"
    _write(folder / "tokens.csv", users.encode())
    _write(folder / "kubeconfig", kubeconfig(folder, address, tokens).encode())


def kubeconfig(folder: Path, address: str, tokens: dict[str, str], namespace: str = "") -> str:
    """Return a kubeconfig with a context for each token; the first one is the current one."""
    authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    cluster = {"server": f"https://{address}:{PORT}", "certificate-authority-data": authority}
    where = {"namespace": namespace} if namespace else {}
    return json.dumps(  # which is YAML too
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
            "contexts": [
                {"name": name, "context": {"cluster": "tests", "user": name, **where}}
                for name in tokens
            ],
            "current-context": next(iter(tokens)),
        },
        indent=1,
    )


def serving(folder: Path, name: str, names: Sequence[str]) -> Path:
    """Return a new folder with `tls.crt` and `tls.key` of a server, which the cluster trusts."""
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    alternatives: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
    issued, own = _certificate(name, authority, signer, "", alternatives)
    found = folder / name
    found.mkdir()
    _write(found / "tls.crt", issued.public_bytes(serialization.Encoding.PEM))
    _write(found / "tls.key", _pem(own))
    return found


def _certificate(
    name: str,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
    group: str = "",
    alternatives: list[x509.GeneralName] | None = None,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Issue a certificate, an authority's own one without an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    subject = x509.Name(attributes)
    signer = issuer_key or key
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if issuer is None:
        usage = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("encipher_only", "decipher_only"),
            ),
            False,
        )
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage),
            critical=True,
        )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(signer, hashes.SHA256()), key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
