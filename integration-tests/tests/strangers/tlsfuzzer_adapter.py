"""Fits conversations of tlsfuzzer to our port for TCP, and notes how they end.

tlsfuzzer's are written for a web server that lets everybody in. Here each speaks our protocol,
shows a certificate of the job where the server asks who it is, and may end wherever the server
hangs up.
"""

from collections import Counter

from tlsfuzzer import expect, messages, runner
from tlslite.api import X509, X509CertChain, parsePEMKey
from tlslite.constants import ContentType, ExtensionType
from tlslite.extensions import ALPNExtension

from tcp import ALPN

PATIENCE = 15
# More than a member says first, so that the server need not wait for the rest.
SAID = 100

AS_WRITTEN = "as written"
NO_MEMBER = "hung up on after its Finished"
NO_ALERT = "hung up on where an alert was awaited"
EARLIER = "hung up on earlier"
TAKEN = "answered where an alert was awaited"
OTHERWISE = "answered otherwise"


class Ledger:
    """How conversations ended, and whether one was told anything or not let go."""

    def __init__(self):
        self.ends, self.problems = Counter(), []

    def __str__(self):
        return f"{self.ends.total()} conversations: " + ", ".join(
            f"{count} {end}" for end, count in self.ends.most_common()
        )

    def note(self, end):
        self.ends[end] += 1

    def failed(self, error):
        """What the server did that the conversation has no word for."""
        problem = str(error)
        if problem.startswith(("Timeout", "timed out")) or "ApplicationData" in problem:
            self.problems.append(problem)
        lines = problem.splitlines() or [type(error).__name__]
        self.note(EARLIER if "Unexpected closure" in problem else f"{OTHERWISE} ({lines[0][:60]})")

    def check(self):
        assert not self.problems, self.problems


class Ending(expect.ExpectClose):
    """The server hangs up in place of what was awaited."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def process(self, state, msg):
        state.end = self.end
        super().process(state, msg)


class Answer(expect.Expect):
    """Whatever the server says in place of an alert; nothing of ours may be in it."""

    def __init__(self):
        super().__init__(None)

    def is_match(self, msg):
        return True

    def process(self, state, msg):
        assert msg.contentType != ContentType.application_data, "ApplicationData"
        state.end = TAKEN


def told(state, msg):
    raise AssertionError(f"ApplicationData of {len(msg.write())} bytes")


def nodes(conversation):
    """All that a conversation can come to."""
    found, ahead = {}, [conversation]
    while ahead:
        node = ahead.pop()
        if node is not None and id(node) not in found:
            found[id(node)] = node
            ahead += [node.child, node.next_sibling]
    return list(found.values())


def may_end(node):
    """The server may hang up here, and what that means."""
    siblings = list(node.get_all_siblings())
    if any(isinstance(sibling, expect.ExpectClose) for sibling in siblings):
        return
    kinds = {type(sibling) for sibling in siblings}
    late = {expect.ExpectNewSessionTicket, expect.ExpectApplicationData}
    if expect.ExpectAlert in kinds:
        siblings[-1].next_sibling = Ending(NO_ALERT)
        if kinds <= {expect.ExpectAlert, expect.ExpectNewSessionTicket}:
            siblings[-1].next_sibling.next_sibling = Answer()
    else:
        siblings[-1].next_sibling = Ending(NO_MEMBER if kinds & late else EARLIER)


def protocol(name=ALPN):
    return {ExtensionType.alpn: ALPNExtension().create([name.encode()])}


def speak_our_protocol(hello):
    if hello.extensions and ExtensionType.alpn not in hello.extensions:
        # In front: what shows that a secret is known has to come last.
        hello.extensions = {**protocol(), **hello.extensions}


class Credentials:
    """What a stranger shows, and can prove to be its own."""

    def __init__(self, key, certificate):
        own = X509()
        own.parse(open(certificate).read())
        self.certificates = [own]
        self.key = parsePEMKey(open(key).read(), private=True, implementations=["python"])

    def shown(self):
        """The two messages of it."""
        chain = X509CertChain(self.certificates)
        return messages.CertificateGenerator(chain), messages.CertificateVerifyGenerator(self.key)


class Adapter:
    """Has a certificate to show."""

    def __init__(self, credentials):
        self.credentials, self.seen = credentials, set()

    def adapt(self, conversation):
        every = nodes(conversation)
        # What a script plays twice is adapted once, and lives on so that no other has its id.
        if conversation in self.seen:
            return
        self.seen.add(conversation)
        greetings = [node for node in every if isinstance(node, expect.ExpectEncryptedExtensions)]
        asked = any(isinstance(node.child, expect.ExpectCertificateRequest) for node in greetings)
        for node in every:
            self.fit(node)
            if not asked and isinstance(node.child, messages.FinishedGenerator):
                self.certify(node)
        for node in every:
            if node.is_expect():
                may_end(node)
        for node in greetings:
            if not asked and isinstance(node.child, expect.ExpectCertificate):
                request = expect.ExpectCertificateRequest()
                request.next_sibling = Ending(EARLIER)
                request.add_child(node.child)
                node.add_child(request)

    def fit(self, node):
        if isinstance(node, messages.Connect):
            node.timeout = PATIENCE
        elif isinstance(node, messages.ClientHelloGenerator):
            speak_our_protocol(node)
        elif isinstance(node, messages.ApplicationDataGenerator) and node.payload:
            node.payload += bytes(max(0, SAID - len(node.payload)))
        elif isinstance(node, expect.ExpectEncryptedExtensions):
            # Ours names a protocol.
            node.extensions = None
        elif isinstance(node, expect.ExpectApplicationData):
            node.process = told

    def certify(self, node):
        """Shows the certificate before the client is finished."""
        finished = node.child
        if not finished.context:
            certificate, proof = self.credentials.shown()
            node.add_child(certificate).add_child(proof).add_child(finished)


def player(ledger, adapt):
    """A runner in place of tlsfuzzer's."""

    class Player(runner.Runner):
        def __init__(self, conversation):
            super().__init__(conversation)
            adapt(conversation)
            self.state.end = AS_WRITTEN

        def run(self):
            try:
                super().run()
                ledger.note(self.state.end)
            except (Exception, SystemExit) as error:
                ledger.failed(error)
                raise
            finally:
                if self.state.msg_sock:
                    self.state.msg_sock.sock.close()

    return Player
