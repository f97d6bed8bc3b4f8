"""Private keys with self-signed certificates, for the variable COURIER_TLS."""

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, 'a run')])


def write(path: pathlib.Path, days: float = 1.0) -> str:
  """Writes a new key and its certificate, which ends in so many days; returns the path as a string."""
  key = ec.generate_private_key(ec.SECP256R1())
  end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days)
  certificate = (
    x509.CertificateBuilder()
    .subject_name(_NAME)
    .issuer_name(_NAME)
    .public_key(key.public_key())
    .serial_number(x509.random_serial_number())
    .not_valid_before(end - datetime.timedelta(days=10))
    .not_valid_after(end)
    .sign(key, hashes.SHA256())
  )
  path.write_bytes(
    key.private_bytes(
      serialization.Encoding.PEM,
      serialization.PrivateFormat.PKCS8,
      serialization.NoEncryption(),
    )
    + certificate.public_bytes(serialization.Encoding.PEM)
  )
  return str(path)
