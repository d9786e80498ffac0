"""TLS: a context whose certificate is replaced while connections go on."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from rejoinder.agent.config import ConfigError, Settings


class Certificate:
    """The server's certificate.

    cert: PEM file of the certificate and its chain. key: PEM file of its private key, None if that is in
    ``cert``. context: TLS 1.2 and newer. Raises ValueError where the files do not fit.
    """

    def __init__(self, cert: Path, key: Path | None) -> None:
        self._cert, self._key = cert, key
        self.paths = [cert, key] if key else [cert]
        self.context = self._current = self._loaded()
        self.context.sni_callback = self._choose

    def read(self) -> None:
        """Use the files' certificate for the handshakes from now on. Raises ValueError.

        Connections that are open keep theirs. Each certificate gets a context of its own: loaded into the old
        one, it would stand beside the old certificate if their keys are of different types.
        """
        self._current = self._loaded()

    def _loaded(self) -> ssl.SSLContext:
        context = new_context()
        load(context, self._cert, self._key)
        return context

    def _choose(self, connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        """Let a handshake use the newest certificate. OpenSSL asks at each one, with or without a name."""
        connection.context = self._current


def open_certificate(settings: Settings) -> Certificate | None:
    """Return the certificate of the settings, None for a server without TLS. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    key = Path(settings.tls_key).expanduser() if settings.tls_key else None
    try:
        return Certificate(Path(settings.tls_cert).expanduser(), key)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def new_context() -> ssl.SSLContext:
    """Return a context without a certificate: TLS 1.2 and newer, without renegotiation and compression."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # since Python 3.10 with OpenSSL's secure ciphers only
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    return context


def load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    """Load a certificate and its key into a context. Raises ValueError with a sentence for the operator."""
    for name, path in (("tls_cert", cert), ("tls_key", key)):
        try:
            text = path.read_bytes() if path else b"-----BEGIN"
        except OSError as error:
            raise ValueError(f"{name}: cannot read {path}: {error.strerror}") from error
        if b"-----BEGIN" not in text:
            raise ValueError(f"{name}: {path} is not a PEM file, which has a line -----BEGIN ...-----")
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
    except ssl.SSLError as error:
        raise ValueError(_reason(error, cert, key)) from error
    except OSError as error:  # deleted since: OpenSSL reads it by its name
        raise ValueError(
            f"tls_cert, tls_key: cannot read {cert} and {key or cert}: {error.strerror}"
        ) from error


def _refuse_password() -> str:
    # Without this function OpenSSL would ask at the terminal.
    raise ValueError(
        "tls_key: the private key is encrypted: store it decrypted, readable for the server only"
    )


def _reason(error: ssl.SSLError, cert: Path, key: Path | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls_key: the key in {key or cert} does not belong to the first certificate in {cert}"
    if key is None:
        return f"tls_cert: {cert} must contain the certificate and its private key, or set tls_key too"
    return f"tls_cert, tls_key: {cert} and {key} are not a certificate and its key ({error.reason})"


class ClosableTransport:
    """A transport with TLS that may be closed more than once, as one without TLS may.

    At the second ``close`` asyncio's own forgets its connection (``_SSLProtocolTransport`` in
    asyncio/sslproto.py). Then each other method raises AttributeError, also in callbacks of uvicorn's and of
    ours that are still to run. All else is the transport's own.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the connection once what is written has been sent."""
        if not self._transport.is_closing():
            self._transport.close()
