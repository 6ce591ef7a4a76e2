"""Conversations with tlsfuzzer's library: a stranger that has a certificate of the job.

It gets through the handshake, so that it speaks to the records that are our own.
"""

import contextlib
import io
import os
import random
import socket
import struct
import tempfile
import time

from tlsfuzzer import expect, messages, runner
from tlsfuzzer.helpers import RSA_SIG_ALL, key_share_gen
from tlslite.constants import CipherSuite, ContentType, ExtensionType, GroupName
from tlslite.extensions import (
    ClientKeyShareExtension,
    SignatureAlgorithmsExtension,
    SupportedGroupsExtension,
    SupportedVersionsExtension,
)

from authority import Authority
from group import HOST
from tcp import rest
from tlsfuzzer_adapter import EARLIER, NO_MEMBER, PATIENCE
from tlsfuzzer_adapter import Credentials, Ending, Ledger, player, protocol

LET_GO = "let go as it said no more"
FLIGHT = ["ServerHello", "ChangeCipherSpec", "EncryptedExtensions", "CertificateRequest"]
FLIGHT += ["Certificate", "CertificateVerify", "Finished"]
# What a member says first: its head (BulkHead in collectives/src/quic/heads.rs) and its proof.
HEAD, PROOF = 17, 32
CIPHERS = [
    CipherSuite.TLS_AES_128_GCM_SHA256,
    CipherSuite.TLS_AES_256_GCM_SHA384,
    CipherSuite.TLS_CHACHA20_POLY1305_SHA256,
]


class Hush(messages.Command):
    """Says that nothing follows."""

    def process(self, state):
        state.msg_sock.sock.socket.shutdown(socket.SHUT_WR)


def client_hello(cipher=CIPHERS[0], named=None):
    group = GroupName.x25519
    extensions = {
        ExtensionType.key_share: ClientKeyShareExtension().create([key_share_gen(group)]),
        ExtensionType.supported_versions: SupportedVersionsExtension().create([(3, 4)]),
        ExtensionType.supported_groups: SupportedGroupsExtension().create([group]),
        ExtensionType.signature_algorithms: SignatureAlgorithmsExtension().create(RSA_SIG_ALL),
    }
    named = protocol() if named is None else named
    return messages.ClientHelloGenerator([cipher], extensions={**extensions, **named})


def awaited(what):
    node = getattr(expect, "Expect" + what)()
    node.next_sibling = Ending(EARLIER)
    return node


class Limit(messages.Command):
    """Counts how often it comes by, and is the end when that has taken too long."""

    def __init__(self):
        super().__init__()
        self.count, self.until = 0, time.monotonic() + PATIENCE

    def process(self, state):
        self.count += 1
        assert time.monotonic() < self.until, "Timeout: it is still listened to"


def conversation(port, hello, *said, silent=True):
    """The handshake up to where the client is asked who it is, this, and what comes of it."""
    first = node = messages.Connect(HOST, port, timeout=PATIENCE)
    for step in (hello, *map(awaited, FLIGHT), *said):
        node = node.add_child(step)
    if not silent:
        return first
    # The server may wait for more: then it is told that there is none.
    silence = expect.ExpectNoMessage(0.5)
    silence.next_sibling = Ending(NO_MEMBER)
    node.add_child(silence).add_child(Hush()).add_child(Ending(LET_GO))
    return first


def play(conversations):
    ledger = Ledger()
    for each in conversations:
        # How each ends is noted; tlsfuzzer says the same in its own words.
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            player(ledger, lambda _: None)(each).run()
    ledger.check()
    return str(ledger)


def spoil(dice, generator, length):
    """Changes a message in one of the ways that tlsfuzzer has."""
    places = {dice.randrange(length): dice.randrange(1, 256) for _ in range(dice.randrange(1, 4))}
    ways = [
        lambda: messages.fuzz_message(generator, xors=places),
        lambda: messages.fuzz_message(generator, substitutions=places),
        lambda: messages.pad_handshake(generator, dice.randrange(1, 2000), dice.randrange(256)),
        lambda: messages.truncate_handshake(generator, dice.randrange(1, min(length, 36))),
        # It spoils the records that follow, too, and all are so long.
        lambda: messages.fuzz_encrypted_message(generator, xors={dice.randrange(36): 1}),
    ]
    return dice.choice(ways)()


class Members:
    """Strangers, each with a certificate of the job or one that is much like it."""

    def __init__(self, authority):
        self.authority = authority
        self.own = Credentials(*authority.issue("rank-7"))
        # The other end of every connection of rank 0's.
        self.stolen = Credentials(*authority.issue("rank-1"))

    def strangers(self):
        return [
            self.spoils_a_message_of_the_handshake,
            self.breaks_its_handshake_into_odd_records,
            self.shows_what_is_no_member_s_certificate,
            self.names_another_protocol_or_none,
            self.says_what_no_member_says,
            self.says_it_in_odd_records,
            self.says_what_no_member_s_record_says,
            self.renews_its_key_for_ever,
            self.sends_empty_records_for_ever,
            self.is_silent_in_a_crowd,
        ]

    def finished(self, credentials=None):
        """All of a client's handshake that follows its ClientHello."""
        return [*(credentials or self.own).shown(), messages.FinishedGenerator()]

    def spoils_a_message_of_the_handshake(self, port):
        def conversations():
            for seed in range(300):
                dice = random.Random(seed)
                said = [client_hello(dice.choice(CIPHERS)), *self.finished()]
                place = dice.randrange(len(said))
                spoil(dice, said[place], (120, 800, 260, 36)[place])
                yield conversation(port, *said)

        return play(conversations())

    def breaks_its_handshake_into_odd_records(self, port):
        def conversations():
            for seed in range(40):
                dice = random.Random(seed)
                size = messages.SetMaxRecordSize(dice.randrange(1, 100))
                said = [size, padded(dice.randrange(2000)), *self.finished(), data(os.urandom(HEAD + PROOF))]
                yield conversation(port, client_hello(), *said)

        return play(conversations())

    def shows_what_is_no_member_s_certificate(self, port):
        with tempfile.TemporaryDirectory() as folder:
            other = Authority(folder).issue("rank-1")
            launcher = self.authority.issue("launcher")
            server = self.authority.issue("rank-1", usage="serverAuth")
            shown = [Credentials(*files) for files in (other, launcher, server)]
        long = Credentials(*launcher)
        long.certificates *= 100
        shown.append(long)
        first = data(os.urandom(HEAD + PROOF))
        said = [[*self.finished(each), first] for each in shown]
        # Somebody else's certificate, without its key.
        said.append([self.stolen.shown()[0], *self.finished()[1:], first])
        said.append([messages.CertificateGenerator(), messages.FinishedGenerator(), first])
        return play(conversation(port, client_hello(), *each) for each in said)

    def names_another_protocol_or_none(self, port):
        named = [{}, protocol("h2"), protocol("meshwork/1"), protocol("")]
        first = data(os.urandom(HEAD + PROOF))
        return play(
            conversation(port, client_hello(named=each), *self.finished(), first) for each in named
        )

    def says_what_no_member_says(self, port):
        """Heads of all ranks, groups and lanes, each with a proof that is none."""

        def conversations():
            for seed in range(100):
                dice = random.Random(seed)
                rank, group = dice.choice([0, 1, 7, 2**32 - 1]), dice.choice([0, 1, 2**64 - 1])
                head = struct.pack("<4sIQB", b"BULK", rank, group, dice.randrange(256))
                said = dice.choice([head, dice.randbytes(HEAD)]) + dice.randbytes(PROOF)
                said = said[: dice.choice([HEAD, len(said), len(said)])]
                said += bytes(dice.choice([0, 0, 0, 0, 20_000]))
                who = dice.choice([self.own, self.stolen])
                yield conversation(port, client_hello(), *self.finished(who), data(said))

        return play(conversations())

    def says_it_in_odd_records(self, port):
        """With empty ones, padding and new keys in between."""

        def conversations():
            for seed in range(20):
                dice = random.Random(seed)
                said = self.finished(self.stolen)
                for byte in os.urandom(HEAD + PROOF):
                    said += [padded(dice.choice([0, 1, 50])), data(bytes([byte]))]
                    said += dice.choice([[data(b"")], [messages.KeyUpdateGenerator()], []])
                yield conversation(port, client_hello(), *said)

        return play(conversations())

    def says_what_no_member_s_record_says(self, port):
        """Alerts, tickets, requests and types that do not belong there; and records too long."""
        tls = ContentType
        kinds = [0, tls.change_cipher_spec, tls.alert, tls.handshake, tls.heartbeat, 255]
        whole = [b"", b"\1", b"\1\0", b"\2\x28", b"\4\0\0\0", bytes(2000), os.urandom(300)]
        whole += [b"\x18\0\0\1\1", b"\x18\0\0\1", b"\x18\0\0\1\0" * 2]
        said = [(kind, bytearray(text)) for kind in kinds for text in whole]
        records = [messages.RawMessageGenerator(*each) for each in said]
        records += [messages.PlaintextMessageGenerator(*each) for each in said]
        for place in range(0, 60, 4):
            records.append(messages.fuzz_encrypted_message(data(b"x" * 60), xors={place: 1}))
        return play(
            conversation(port, client_hello(), *self.finished(), record) for record in records
        )

    def renews_its_key_for_ever(self, port):
        return self.for_ever(port, messages.KeyUpdateGenerator)

    def sends_empty_records_for_ever(self, port):
        return self.for_ever(port, lambda: data(b""))

    def for_ever(self, port, record):
        """As long as it is listened to."""
        began, limit = time.monotonic(), Limit()
        limit.add_child(record()).add_child(limit)
        ended = play([conversation(port, client_hello(), *self.finished(), limit, silent=False)])
        return f"{ended}, {limit.count} records and {time.monotonic() - began:.1f} s after it began"

    def is_silent_in_a_crowd(self, port):
        began, streams, kept = time.monotonic(), [], []
        for _ in range(60):
            whole = conversation(port, client_hello(), *self.finished(), silent=False)
            one = runner.Runner(whole)
            one.run()
            streams.append(one.state.msg_sock.sock.socket)
        for stream in streams:
            said = rest(stream)
            assert not said, said
            kept.append(time.monotonic() - began)
        return f"{len(kept)} connections, the last let go {max(kept):.1f} s after the first began"


def padded(size):
    """So many zeros at the end of each record, as far as they fit in."""
    return messages.SetPaddingCallback(lambda length, _, most: max(0, min(size, most - length)))


def data(said):
    # Bytes, because tlslite-ng appends to what it is given to send.
    return messages.ApplicationDataGenerator(bytes(said))
