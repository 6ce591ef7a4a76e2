"""Strangers at the port for UDP: aioquic, and packets that aioquic would not send."""

import os
import random
import socket
import struct
import tempfile
import time

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamDataReceived
from aioquic.quic.packet import QuicProtocolVersion

from group import HOST
from tcp import self_signed

ALPN = "meshwork/1"
VERSION = QuicProtocolVersion.VERSION_1


def variable(number):
    """A number as RFC 9000 has it, section 16."""
    for bits, size in enumerate((1, 2, 4, 8)):
        if number < 1 << (8 * size - 2):
            return (number | bits << (8 * size - 2)).to_bytes(size, "big")
    raise ValueError(number)


def initial(frames, target=None, version=VERSION, number=0):
    """An Initial packet with these frames, as long as servers demand."""
    target = target or os.urandom(8)
    source = os.urandom(8)
    payload = frames + bytes(max(0, 1162 - len(frames)))
    length = struct.pack(">H", 0x4000 | (len(payload) + 2 + 16))
    names = bytes([len(target)]) + target + bytes([len(source)]) + source
    head = bytes([0xC1]) + struct.pack(">I", version) + names + b"\0" + length
    pair = CryptoPair()
    pair.setup_initial(cid=target, is_client=True, version=version)
    return pair.encrypt_packet(head + struct.pack(">H", number), payload, number)


def crypto(offset, data):
    return b"\x06" + variable(offset) + variable(len(data)) + data


def close(code=0x100, reason=b""):
    return b"\x1c" + variable(code) + b"\0" + variable(len(reason)) + reason


def client(port, alpn=ALPN, certificate=None):
    """A client that believes everybody."""
    configuration = QuicConfiguration(alpn_protocols=[alpn], verify_mode=0, server_name="x.invalid")
    if certificate:
        configuration.load_cert_chain(certificate[1], certificate[0])
    connection = QuicConnection(configuration=configuration)
    connection.connect((HOST, port), now=time.monotonic())
    return connection


def opening(port):
    """What a client sends first."""
    connection = client(port)
    return [datagram for datagram, _ in connection.datagrams_to_send(time.monotonic())]


def refused(port, **options):
    """Shakes hands as far as it goes; the end must be a refusal, before any word of the group."""
    connection = client(port, **options)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(0.5)
        until = time.monotonic() + 15
        completed = False
        while time.monotonic() < until:
            for datagram, _ in connection.datagrams_to_send(time.monotonic()):
                udp.sendto(datagram, (HOST, port))
            try:
                connection.receive_datagram(udp.recv(65536), (HOST, port), time.monotonic())
            except TimeoutError:
                connection.handle_timer(time.monotonic())
            while event := connection.next_event():
                assert not isinstance(event, StreamDataReceived), event
                completed |= isinstance(event, HandshakeCompleted)
                if isinstance(event, ConnectionTerminated):
                    said = event.reason_phrase or "no reason"
                    seen = "after its own Finished" if completed else "in the handshake"
                    return f"error {event.error_code:#x} {seen}: {said}"
    raise AssertionError("neither let in nor refused within 15 s")


def without_a_certificate(port):
    return refused(port)


def with_another_protocol(port):
    return refused(port, alpn="h3")


def with_its_own_certificate(port):
    with tempfile.TemporaryDirectory() as folder:
        return refused(port, certificate=self_signed(folder))


def with_a_version_that_does_not_exist(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.sendto(initial(crypto(0, bytes(300)), version=0x1A2A3A4A), (HOST, port))
        said = udp.recv(2000)
    assert said[1:5] == bytes(4), said
    at = 5
    for _ in range(2):
        at += 1 + said[at]
    versions = [word.hex() for word in (said[i : i + 4] for i in range(at, len(said), 4))]
    assert VERSION.to_bytes(4, "big").hex() in versions, versions
    return f"told of {len(versions)} versions"


def stalls_after_its_first_packet(port):
    """So many that begin a connection, each from a port of its own, and never go on."""
    sockets = []
    for _ in range(400):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for datagram in opening(port):
            udp.sendto(datagram, (HOST, port))
        sockets.append(udp)
    time.sleep(2)
    for udp in sockets:
        udp.close()
    return f"{len(sockets)} connections begun"


def mutilates_its_first_packet(port):
    dice, sent = random.Random(17), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(20):
            [whole] = opening(port)[:1]
            for _ in range(150):
                packet = bytearray(whole)
                for _ in range(dice.randrange(4)):
                    packet[dice.randrange(len(packet))] ^= 1 << dice.randrange(8)
                if dice.randrange(3) == 0:
                    del packet[dice.randrange(1, len(packet)) :]
                if dice.randrange(5) == 0:
                    packet += bytes(dice.randrange(300))
                udp.sendto(packet, (HOST, port))
                sent += 1
    return f"{sent} packets with bits changed, cut short and made longer"


def says_what_no_first_packet_says(port):
    """Well-sealed Initial packets with frames that do not belong there."""
    frames = [
        b"",
        b"\x01",
        crypto((1 << 62) - 300, bytes(200)),
        crypto(1 << 20, bytes(200)),
        crypto(0, b"\x01\xff\xff\xff" + bytes(900)),
        crypto(0, bytes(500)) + crypto(100, b"\xff" * 500),
        b"\x06\xff\xff\xff\xff\xff\xff\xff\xff\x44\x00",
        b"\x02\x40\xff\x00\x00\x00",
        b"\x02" + variable((1 << 62) - 1) + b"\0\0" + variable((1 << 62) - 1),
        b"\x08\x00" + bytes(40),
        b"\x1e",
        b"\x1f" * 40,
        b"\x40\x2a",
        b"\x18" + bytes(40),
        close(),
        close(0x178, os.urandom(800)),
    ]
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for frame in frames:
            for number in (0, 1, 0xFFFF):
                udp.sendto(initial(frame, number=number), (HOST, port))
                sent += 1
        # Several in one connection, whose first is a proper beginning.
        for frame in frames:
            [whole] = opening(port)[:1]
            target = whole[6 : 6 + whole[5]]
            udp.sendto(whole, (HOST, port))
            udp.sendto(initial(frame, target=target, number=7), (HOST, port))
            sent += 2
    return f"{sent} packets"


def overheard(ports):
    """A packet between the two ranks that is under way now: from, to, and its first bytes."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as ear:
        ear.bind(("lo", 0))
        until = time.monotonic() + 10
        while time.monotonic() < until:
            frame = ear.recv(2048)
            packet = frame[14:]
            head = 4 * (packet[0] & 15)
            sender, receiver = struct.unpack(">HH", packet[head : head + 4])
            body = packet[head + 8 :]
            if packet[9] == 17 and {sender, receiver} == set(ports) and not body[0] & 0x80:
                return sender, receiver, body
    raise AssertionError("the ranks say nothing to each other over UDP")


def forged(sender, receiver, body):
    """A UDP packet of somebody else."""
    udp = struct.pack(">HHHH", sender, receiver, 8 + len(body), 0) + body
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
    return ip + 2 * socket.inet_aton(HOST) + udp


def closes_the_connection_of_others(ports):
    """Who can listen and forge addresses, but has no keys, ends nothing."""
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for _ in range(50):
            sender, receiver, body = overheard(ports)
            target = body[1:9]
            inventions = [
                initial(close(), target=target),
                initial(close(0x12A, b"bad certificate"), target=target, number=0xFFFF),
                body[:1] + target + os.urandom(40),
                body[:9] + bytes(byte ^ 0x55 for byte in body[9:]),
                b"\x40" + os.urandom(40),
                b"\xc0" + bytes(4) + b"\x08" + target + b"\x08" + target + VERSION.to_bytes(4, "big"),
                body,
                body[: len(body) // 2],
            ]
            for invention in inventions:
                raw.sendto(forged(sender, receiver, invention), (HOST, 0))
                sent += 1
    return f"{sent} packets in the name of a rank, repeated ones among them"


AIOQUIC = [
    without_a_certificate,
    with_another_protocol,
    with_its_own_certificate,
    with_a_version_that_does_not_exist,
    stalls_after_its_first_packet,
    mutilates_its_first_packet,
    says_what_no_first_packet_says,
]
