"""Strangers at the port for TCP: OpenSSL, tlslite-ng, and bytes that no library sends."""

import os
import socket
import struct
import subprocess
import tempfile
import threading
import time

from group import HOST

ALPN = "meshwork-bulk/1"


def dial(port):
    stream = socket.create_connection((HOST, port), timeout=15)
    stream.settimeout(15)
    return stream


def finish(stream, data):
    """Says this, and that nothing follows; the other end may have hung up before."""
    try:
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise


def rest(stream):
    """All that is said until the end, which may be a reset."""
    said = b""
    try:
        while more := stream.recv(65536):
            said += more
    except ConnectionError:
        pass
    return said


def openssl(port, *options):
    """How `openssl s_client` was refused: by an alert, or by the end of the connection."""
    command = ["openssl", "s_client", "-connect", f"{HOST}:{port}", *options]
    # Its input stays open, so it waits for the other end's word.
    client = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    alarm = threading.Timer(15, client.kill)
    alarm.start()
    said = client.stdout.read()
    alarm.cancel()
    refused = [line for line in said.splitlines() if ":error:" in line or "errno=" in line]
    assert refused and client.wait() >= 0, said
    return refused[0].split(":error:")[-1].split(":../")[0]


def self_signed(folder):
    files = [os.path.join(folder, name) for name in ("key.pem", "cert.pem")]
    command = "openssl req -x509 -newkey ed25519 -nodes -subj /CN=rank-1.meshwork.invalid -days 2"
    options = ["-keyout", files[0], "-out", files[1]]
    subprocess.run([*command.split(), *options], check=True, capture_output=True)
    return files


def openssl_without_a_certificate(port):
    return openssl(port, "-alpn", ALPN)


def openssl_with_its_own_certificate(port):
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = self_signed(folder)
        return openssl(port, "-alpn", ALPN, "-key", key, "-cert", certificate)


def openssl_with_another_protocol(port):
    return openssl(port, "-alpn", "h2")


def openssl_with_tls_1_2(port):
    return openssl(port, "-tls1_2")


def openssl_without_common_groups(port):
    return openssl(port, "-alpn", ALPN, "-groups", "ffdhe2048")


def tlslite_with_its_own_certificate(port):
    from tlslite.api import TLSConnection, X509, X509CertChain, parsePEMKey
    from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert

    with tempfile.TemporaryDirectory() as folder:
        key, certificate = [open(path).read() for path in self_signed(folder)]
    own = X509()
    own.parse(certificate)
    connection = TLSConnection(dial(port))
    try:
        chain = X509CertChain([own])
        key = parsePEMKey(key, private=True, implementations=["python"])
        connection.handshakeClientCert(chain, key, alpn=[ALPN.encode()])
        said = connection.read(min=1, max=64)
        raise AssertionError(f"it was let in and told {said}")
    except (TLSAbruptCloseError, TLSRemoteAlert, ConnectionError) as refusal:
        return f"{type(refusal).__name__} {refusal}".strip()


def client_hello():
    """The first record of a handshake, as tlslite-ng writes it."""
    from tlslite.api import TLSConnection

    near, far = socket.socketpair()
    steps = TLSConnection(near).handshakeClientAnonymous(async_=True)
    # The first step that wants to read has written.
    far.setblocking(False)
    near.setblocking(False)
    for _ in range(20):
        if next(steps) == 0:
            break
    return far.recv(65536)


def stalls_in_the_middle_of_a_client_hello(port):
    """Crowds that say half a sentence and wait."""
    hello = client_hello()
    streams = [dial(port) for _ in range(100)]
    for place, stream in enumerate(streams):
        stream.sendall(hello[: place * len(hello) // 100])
    time.sleep(3)
    for stream in streams:
        stream.close()
    return "100 connections, held for 3 s"


def speaks_a_byte_a_second(port):
    """It has ten seconds to say who it is, however much it says."""
    hello, began = client_hello(), time.monotonic()
    with dial(port) as stream:
        try:
            for byte in hello:
                stream.sendall(bytes([byte]))
                time.sleep(1)
                if time.monotonic() - began > 20:
                    raise AssertionError("it is still listened to after 20 s")
        except ConnectionError:
            pass
    return f"cut off after {time.monotonic() - began:.0f} s"


def sends_records_of_one_byte(port):
    hello = client_hello()
    head, body = hello[:3], hello[5:]
    records = [head + struct.pack(">H", 1) + bytes([byte]) for byte in body]
    with dial(port) as stream:
        finish(stream, b"".join(records))
        return f"answered by {len(rest(stream))} bytes"


def announces_endless_messages(port):
    """A handshake message of 16 MiB, and more behind it: it must not all be taken."""
    sent, record = 0, b"\x16\x03\x03\x40\x00" + b"\x0b\xff\xff\xff" + bytes(16380)
    with dial(port) as stream:
        try:
            while sent < 64 << 20:
                stream.sendall(record)
                sent += len(record)
        except ConnectionError:
            return f"cut off, {sent >> 10} KiB sent by then, most of them into buffers of the kernel"
    raise AssertionError("64 MiB of a handshake are taken")


def sends_noise(port):
    starts = [b"", b"\x16\x03\x01", b"\x17\x03\x03", b"\x80\x2e\x01\x03\x01", b"GET / HTTP/1.1\r\n\r\n"]
    answers = 0
    for start in starts:
        for length in (0, 1, 5, 300, 20_000):
            with dial(port) as stream:
                finish(stream, start + os.urandom(length))
                said = rest(stream)
                assert len(said) < 64, said
                answers += bool(said)
    return f"{len(starts) * 5} connections, {answers} answered"


OPENSSL = [
    openssl_without_a_certificate,
    openssl_with_its_own_certificate,
    openssl_with_another_protocol,
    openssl_with_tls_1_2,
    openssl_without_common_groups,
]
TLSLITE = [
    tlslite_with_its_own_certificate,
    stalls_in_the_middle_of_a_client_hello,
    speaks_a_byte_a_second,
    sends_records_of_one_byte,
]
PLAIN = [announces_endless_messages, sends_noise]
