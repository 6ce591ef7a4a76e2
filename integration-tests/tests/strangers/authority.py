"""An authority that signs certificates for the ranks of a job, and for strangers."""

import os
import subprocess

JOB = "strangers"


class Authority:
    """Its files are in a folder that somebody else removes."""

    def __init__(self, folder):
        self.folder = folder
        self.key, self.certificate = self._sign("authority", "rsa:2048")

    def issue(self, name, key="rsa:2048", usage="serverAuth,clientAuth"):
        """Files of a key and its certificate; `key` is as `openssl req -newkey` has it."""
        names = ",".join(f"DNS:{who}.{JOB}.meshwork.invalid" for who in (name, "member"))
        extensions = ["basicConstraints=critical,CA:FALSE", f"extendedKeyUsage={usage}"]
        extensions.append(f"subjectAltName={names}")
        added = [word for extension in extensions for word in ("-addext", extension)]
        signed = ["-CA", self.certificate, "-CAkey", self.key]
        return self._sign(f"{name}-{key[:3]}-{len(usage)}", key, *added, *signed)

    def environment(self, rank):
        """What tells a worker who it is."""
        key, certificate = self.issue(f"rank-{rank}")
        return {
            "MESHWORK_CERTIFICATE_JOB": JOB,
            "MESHWORK_CERTIFICATE_FILE": certificate,
            "MESHWORK_CERTIFICATE_KEY_FILE": key,
            "MESHWORK_CERTIFICATE_AUTHORITY_FILE": self.certificate,
        }

    def _sign(self, name, key, *options):
        files = [os.path.join(self.folder, f"{name}.{end}") for end in ("key", "pem")]
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if key == "ec" else []
        command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        written = ["-newkey", key, *curve, "-keyout", files[0], "-out", files[1]]
        subprocess.run([*command, *written, *options], check=True, capture_output=True)
        return files
