"""Certificates for the tests of TLS: an authority, and certificates that it signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def usage(*wanted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{one: one in wanted for one in USAGES})


class Authority:
    """Signs certificates for a name and 127.0.0.1."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named("authority of these tests")
        self._id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = self._begun(self._name, self._key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        made = made.add_extension(usage("key_cert_sign", "crl_sign"), critical=True)
        made = made.add_extension(self._id, critical=False)
        self.pem = made.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def issue(self, name: str, of_rsa: bool = False) -> tuple[bytes, bytes]:
        """Return a new certificate and its private key, both as PEM. of_rsa: else of a curve."""
        key = rsa.generate_private_key(65537, 2048) if of_rsa else ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(IPv4Address("127.0.0.1"))])
        made = self._begun(named(name), key)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(names, critical=False)
        made = made.add_extension(usage("digital_signature"), critical=True)
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id)
        made = made.add_extension(signer, critical=False)
        certificate = made.sign(self._key, SHA256())
        form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        return certificate.public_bytes(Encoding.PEM), key.private_bytes(*form)

    def _begun(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(self._name)
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=30))


def replace(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, as certbot and Kubernetes do."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
