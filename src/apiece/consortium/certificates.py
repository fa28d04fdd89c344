"""The consortium's certificate authority, and the certificate by which nodes know its server.

Both keys are of the curve P-384. A node trusts this authority alone, and only for this server: there is no list of
revoked certificates, so whoever has the server's key is the server until its certificate ends.
"""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiece.consortium.private import PRIVATE, PUBLIC, groups, load, text
from apiece.errors import UserError
from apiece.system.files import atomic_write

YEARS, DAYS = 10, 365  # how long the authority, and how long the server's certificate is valid
EARLIER = dt.timedelta(hours=1)  # a clock that is late by less takes a new certificate at once
SOON = dt.timedelta(days=30)
HERE = ("localhost", "127.0.0.1")  # the coordinator's own commands, and the proxy, reach the server there


class Validity(NamedTuple):
    """When the authority and when the server's certificate end."""

    authority: dt.datetime
    server: dt.datetime


def authority(folder: Path, now: dt.datetime) -> None:
    """Make the authority: `ca.crt` and `ca.key` in this folder, valid for ten years."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of an apiece consortium")])
    uses = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # to sign certificates, and lists
    made = (
        _begun(name, name, key.public_key(), now, now + dt.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(uses, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    atomic_write(folder / "ca.key", text(key, serialization.PrivateFormat.PKCS8), PRIVATE)
    atomic_write(folder / "ca.crt", made.public_bytes(serialization.Encoding.PEM), PUBLIC)


def certify(folder: Path, host: str, now: dt.datetime) -> None:
    """Make the server's certificate anew for a host, signed by the folder's authority: `server/server.pem`, valid for a
    year, or until the authority ends. The key `server/server.key` stays, if there is one.
    """
    if not (folder / "ca.key").is_file():
        raise UserError(f"{folder / 'ca.key'} is missing, which signs certificates: bring it from where it is kept.")
    signed, signer = certificate(folder / "ca.crt"), load(folder / "ca.key")
    if now >= signed.not_valid_after_utc:
        raise UserError(f"{ended(signed)}: no certificate of it is trusted, so make a new consortium and new keys.")
    if signed.public_key() != signer.public_key():
        raise UserError(f"{folder / 'ca.key'} is not the key of ca.crt: restore both from one backup.")
    path = folder / "server" / "server.key"
    key = load(path) if path.exists() else ec.generate_private_key(ec.SECP384R1())
    names = [_general(name) for name in dict.fromkeys((host, *HERE))]
    uses = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # to sign a handshake
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server of an apiece consortium")])
    end = min(now + dt.timedelta(days=DAYS), signed.not_valid_after_utc)
    made = (
        _begun(subject, signed.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(uses, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    if not path.exists():
        atomic_write(path, text(key, serialization.PrivateFormat.PKCS8), PRIVATE)
    atomic_write(folder / "server" / "server.pem", made.public_bytes(serialization.Encoding.PEM), PUBLIC)


def certificate(path: Path) -> x509.Certificate:
    """The certificate of a file; UserError if it has none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): restore it from a backup.") from None
    except ValueError:
        raise UserError(f"{path} is no certificate: restore it from a backup.") from None


def checked(folder: Path, host: str, now: dt.datetime) -> Validity:
    """When the certificates of a folder end; UserError if nodes would refuse its server at this host and moment, and if
    files do not belong together.
    """
    ours, server = certificate(folder / "ca.crt"), certificate(folder / "server" / "server.pem")
    renew = f"`apiece deploy renew {folder}`"
    if server.public_key() != load(folder / "server" / "server.key").public_key():
        raise UserError(f"{folder / 'server' / 'server.pem'} is not of the key server.key: {renew}.")
    try:
        server.verify_directly_issued_by(ours)
    except (ValueError, TypeError, InvalidSignature):
        raise UserError(f"{folder / 'server' / 'server.pem'} is not of the authority ca.crt: {renew}.") from None
    if host not in (there := hosts(server)):
        raise UserError(f"the server's certificate is for {', '.join(there)}, and not for {host}: {renew}.")
    if now >= ours.not_valid_after_utc:
        raise UserError(f"{ended(ours)}: make a new consortium and new keys.")
    if now >= server.not_valid_after_utc:
        raise UserError(f"{ended(server)}: {renew}.")
    if now < server.not_valid_before_utc:
        begins = _said(server.not_valid_before_utc)
        raise UserError(f"the server's certificate is valid from {begins} on: set the clock.")
    return Validity(ours.not_valid_after_utc, server.not_valid_after_utc)


def warned(folder: Path, validity: Validity, now: dt.datetime) -> str:
    """A sentence if a certificate ends within thirty days; else nothing."""
    ends = (("authority", validity.authority), ("server's certificate", validity.server))
    what, end = min(ends, key=lambda of: of[1])
    if end - now >= SOON:
        return ""
    cure = "make a new consortium" if end == validity.authority else f"`apiece deploy renew {folder}`"
    return f"the {what} ends on {_said(end)}: {cure}"


def hosts(of: x509.Certificate) -> tuple[str, ...]:
    """The hosts for which a certificate is, names and addresses."""
    try:
        names = of.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def spoken(path: Path) -> str:
    """The fingerprint of a certificate, to be read out: of the SHA-256 of its DER form, which `openssl x509
    -fingerprint -sha256` prints whole.
    """
    return groups(certificate(path).fingerprint(hashes.SHA256()))


def ended(of: x509.Certificate) -> str:
    """That a certificate ended, and when."""
    return f"the {_title(of)} ended on {_said(of.not_valid_after_utc)}"


def _title(of: x509.Certificate) -> str:
    return "authority" if of.issuer == of.subject else "server's certificate"


def _said(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - EARLIER).not_valid_after(end)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
