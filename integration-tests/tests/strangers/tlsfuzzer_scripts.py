"""tlsfuzzer's own scripts, at the port for TCP."""

import contextlib
import functools
import importlib
import inspect
import io
import os
import random
import re
import sys
import warnings

from group import HOST
from tlsfuzzer_adapter import TAKEN, Adapter, Credentials, Ledger, player

# Conversations of each script, besides the first and the last, which are to be as usual.
CONVERSATIONS = 10
# They measure time or count coincidences.
LEFT_OUT = {
    "test_bleichenbacher_timing_marvin",
    "test_bleichenbacher_timing_pregenerate",
    "test_dhe_key_share_random",
    "test_ecdhe_rsa_key_share_random",
    "test_serverhello_random",
    "test_tls13_dhe_shared_secret_padding",
    "test_tls13_minerva",
    "test_tls13_serverhello_random",
}
# What rustls takes and tlsfuzzer would not. The last wants another kind of certificate.
TAKES = {
    "test_tls13_legacy_version": "a version in the place of the old one",
    "test_tls13_obsolete_curves": "names of groups that TLS 1.3 does not have",
    "test_tls13_record_layer_limits": "a ClientHello in a record that is too long",
    "test_tls13_shuffled_extentions": "a second ClientHello in another order",
    "test_tls13_rsapss_signatures": "algorithms that fit our certificate",
}
# What a stranger with a key of its own has to show for a script of that name.
KEYS = {"ecdsa_in_certificate_verify": "ec", "eddsa_in_certificate_verify": "ed25519"}
# Two are allowed, as two ClientHellos are.
OPTIONS = {"test_tls13_multiple_ccs_messages": ["--ccs=3"]}


def names(folder):
    files = os.listdir(os.path.join(folder, "tlsfuzzer", "_apps"))
    found = {name.removesuffix(".py") for name in files if name.startswith("test_")}
    return sorted(found - LEFT_OUT)


def options(name, app, files):
    """Those of a script's options that it has."""
    has = re.search(r'getopt\(\s*argv,\s*"([^"]*)"', inspect.getsource(app))[1]
    kind = next((key for end, key in KEYS.items() if name.endswith(end)), "rsa:2048")
    key, certificate = files(kind)
    shown = ["-k", key, "-c", certificate] if "k:" in has and "c:" in has else []
    limit = ["-n", str(CONVERSATIONS)] if "n:" in has else []
    return [*limit, *shown, *OPTIONS.get(name, [])]


class Script:
    """A stranger that says what one script says."""

    def __init__(self, name, adapter, files):
        self.__name__, self.adapter, self.files = name, adapter, files

    def __call__(self, port):
        ledger, argv = Ledger(), sys.argv
        app = importlib.import_module(f"tlsfuzzer._apps.{self.__name__}")
        app.Runner = player(ledger, self.adapter.adapt)
        mine = options(self.__name__, app, self.files)
        sys.argv = [self.__name__, "-h", HOST, "-p", str(port), *mine]
        random.seed(self.__name__)
        said, left = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(said), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                app.main()
        except SystemExit:
            # It finds that the server is none of its kind.
            pass
        except Exception as error:
            left = f"; the script itself: {type(error).__name__} {error}"
        finally:
            sys.argv = argv
        ledger.check()
        known = not ledger.ends[TAKEN] or self.__name__ in TAKES
        assert known, f"{self.__name__}: {ledger}\n{said.getvalue()}"
        return f"{ledger}{left}"


def scripts(folder, authority):
    """A stranger for each, with a certificate of a rank that there is not."""

    @functools.cache
    def files(key):
        return authority.issue("rank-7", key)

    adapter = Adapter(Credentials(*files("rsa:2048")))
    return [Script(name, adapter, files) for name in names(folder)]
