"""The certificate of a run, by which its nodes recognise each other: see `courier.tls`.

Each launch makes an EC key and a certificate that the key itself has signed. Nothing else is trusted, so
a run knows neither the nodes of another run nor those of its own earlier launch. The nodes get the path
of a file with both. On one machine the file is in the memory of the process that starts the nodes, and
goes with it. `launchers.ray.machines` sends this module to machines by value, so only `new` imports more
than the standard library.
"""

from __future__ import annotations

import datetime
import os
from typing import IO

# Environment variable with the path of the file.
VARIABLE = 'COURIER_TLS'
_NAME = 'launchpod'
# JAX's coordinator looks for it in place of a host name; see `nodes.learning.replicas`.
_URI = 'launchpod://run/node'
_SLOW_CLOCK = datetime.timedelta(days=1)
# The date of RFC 5280 for a certificate without an end. It is of no use without its key, which ends with
# the run. A date would end a long run, or one whose manifests are applied again.
_NEVER = datetime.datetime(9999, 12, 31, 23, 59, 59)


def new() -> bytes:
  """Returns a new private key and its certificate, in PEM; valid where the clock is up to a day slow."""
  # Their import takes 0.1 s, and only a launch needs them.
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes, serialization
  from cryptography.hazmat.primitives.asymmetric import ec

  key = ec.generate_private_key(ec.SECP256R1())
  name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
  now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
  usage = dict.fromkeys(
    ('content_commitment', 'key_encipherment', 'data_encipherment', 'key_agreement', 'crl_sign')
    + ('encipher_only', 'decipher_only'),
    False,
  )
  certificate = (
    x509.CertificateBuilder()
    .subject_name(name)
    .issuer_name(name)
    .public_key(key.public_key())
    .serial_number(x509.random_serial_number())
    .not_valid_before(now - _SLOW_CLOCK)
    .not_valid_after(_NEVER)
    # What strict verification, the default of newer Pythons, asks of a trust root.
    .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    .add_extension(
      x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True
    )
    .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    .add_extension(
      x509.SubjectAlternativeName([x509.UniformResourceIdentifier(_URI)]), critical=False
    )
    .sign(key, hashes.SHA256())
  )
  private = key.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
  )
  return private + certificate.public_bytes(serialization.Encoding.PEM)


def in_memory(pem: bytes) -> IO[bytes]:
  """Returns a file in the memory of this process, which only processes of the same user can open."""
  file = open(os.memfd_create(_NAME), 'wb')  # noqa: SIM115  is closed by the caller
  os.fchmod(file.fileno(), 0o600)
  file.write(pem)
  file.flush()
  return file


def variable(file: IO[bytes], pid: int = 0) -> dict[str, str]:
  """Returns the environment variable that names a file of `in_memory`, as long as it is open.

  Args:
    file: the file.
    pid: the process that has it open, and has inherited it; 0 for this one.
  """
  return {VARIABLE: f'/proc/{pid or os.getpid()}/fd/{file.fileno()}'}
