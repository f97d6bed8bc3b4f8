"""The certificate of a run."""

import datetime
import json
import os
import ssl
import stat
import subprocess
import sys

import pytest
from cryptography import x509

from courier import tls
from launchers import certificate
from tests.programs_under_test import ROOT

_DRIVER = """
import json, os, sys
import launchpad as lp
from absl import flags
from launchers.local import threads
from tests.launchers import nodes
flags.FLAGS(sys.argv[:1])
path = sys.argv[1]
program = nodes.program((nodes.Caller, True, path), (nodes.Certificate, False, path))
code = threads.launch(program)
print(json.dumps([code, os.environ.get('COURIER_TLS')]))
os._exit(0)
"""


def test_it_is_valid_from_yesterday_on_for_as_long_as_its_key_exists():
  pem = certificate.new()
  parsed = x509.load_pem_x509_certificate(pem)
  age = datetime.datetime.now(datetime.UTC) - parsed.not_valid_before_utc
  assert abs(age - datetime.timedelta(days=1)) < datetime.timedelta(hours=1)
  assert parsed.not_valid_after_utc.year == 9999
  assert pem != certificate.new()


def test_the_strictest_verification_accepts_it(tmp_path):
  path = tmp_path / 'run.pem'
  path.write_bytes(certificate.new())
  sides = []
  for kind in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
    context = ssl.SSLContext(kind)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(path)
    context.load_verify_locations(path)
    to_peer, from_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = kind == ssl.PROTOCOL_TLS_SERVER
    sides.append((context.wrap_bio(from_peer, to_peer, server), from_peer, to_peer))
  (client, to_client, from_client), (server, to_server, from_server) = sides
  for _ in range(3):
    for side in (client, server):
      try:
        side.do_handshake()
      except ssl.SSLWantReadError:
        to_server.write(from_client.read())
        to_client.write(from_server.read())
  assert client.getpeercert(binary_form=True) == server.getpeercert(binary_form=True) != b''


def test_a_file_in_memory_is_its_users_alone_and_goes_when_it_is_closed():
  file = certificate.in_memory(b'secret')
  path = certificate.variable(file)[tls.VARIABLE]
  assert subprocess.check_output(['cat', path]) == b'secret'
  assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
  file.close()
  assert not os.path.exists(path)


@pytest.mark.slow
def test_nodes_that_are_threads_have_one_too(tmp_path):
  path = str(tmp_path / 'answer')
  done = subprocess.run(
    [sys.executable, '-c', _DRIVER, path],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert json.loads(done.stdout.splitlines()[-1]) == [0, None], done.stderr
  assert (tmp_path / 'answer-certificate').read_text().startswith('-----BEGIN PRIVATE KEY-----')
