"""The server of the live page: who may read what."""

import http.client
import json
import os
import re
import socket
import stat
import urllib.parse

import pytest

import watch
from tests.viewing.web import serving
from tests.waiting import DEADLINE


@pytest.fixture(scope='module')
def page(tmp_path_factory):
  """Port and token of a page over one run directory that has a secret beside its files."""
  with serving.serve(*serving.RUNS) as address:
    url = urllib.parse.urlsplit(address)
    assert url.hostname == '127.0.0.1'
    yield url.port, urllib.parse.parse_qs(url.query)['token'][0]


def ask(page, path, method='GET', token=True, headers=(), connection=None):
  port, secret = page
  connection = connection or http.client.HTTPConnection('127.0.0.1', port, timeout=DEADLINE)
  if token:
    path += f'{"&" if "?" in path else "?"}token={secret}'
  connection.request(method, path, headers=dict(headers))
  reply = connection.getresponse()
  return reply, reply.read()


@pytest.mark.parametrize('path', ['/', '/state', '/static/app.js', '/node?node=actor/0', '/none'])
def test_without_the_token_nothing_is_served(page, path):
  for token in ('', 'x', page[1][:-1], page[1] + 'x', '%F0%9F'):
    reply, body = ask(page, f'{path}{"&" if "?" in path else "?"}token={token}', token=False)
    assert reply.status == 403 and b'token' in body and b'actor' not in body
  assert ask(page, path, token=False)[0].status == 403


def test_the_page_sets_a_cookie_that_replaces_the_token(page):
  reply, body = ask(page, '/')
  cookie = reply.headers['Set-Cookie']
  assert reply.status == 200 and b'<title>Launchpod' in body
  assert 'HttpOnly' in cookie and 'SameSite=Strict' in cookie
  cookies = {'Cookie': cookie.partition(';')[0]}
  assert ask(page, '/state', token=False, headers=cookies)[0].status == 200
  assert ask(page, '/state', token=False, headers={'Cookie': 'launchpod=x'})[0].status == 403


def test_every_file_that_the_page_names_is_served_with_strict_headers(page):
  body = ask(page, '/')[1].decode()
  names = re.findall(r'(?:src|href)="(static/[^"]+)"', body)
  assert len(names) == 7
  assert 'http://' not in body and 'https://' not in body and 'style=' not in body
  for name in names:
    reply, _ = ask(page, f'/{name}')
    policy = reply.headers['Content-Security-Policy']
    assert reply.status == 200
    assert "default-src 'none'" in policy and 'unsafe' not in policy
    assert reply.headers['X-Content-Type-Options'] == 'nosniff'


@pytest.mark.parametrize('host', ['evil.example', 'evil.example:80', '127.0.0.1.evil.example', ''])
def test_another_name_of_this_machine_is_rejected(page, host):
  reply, body = ask(page, '/state', headers={'Host': host})
  assert reply.status in (400, 403) and b'runs' not in body


@pytest.mark.parametrize('host', ['localhost:8080', '127.0.0.1:9999', '[::1]:80', 'localhost'])
def test_the_near_end_of_an_ssh_tunnel_is_served(page, host):
  assert ask(page, '/state', headers={'Host': host})[0].status == 200


@pytest.mark.parametrize('method', ['POST', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS', 'TRACE'])
def test_nothing_can_be_written(page, method):
  for path in ('/', '/state', '/video', '/none'):
    assert ask(page, path, method=method)[0].status == 405


@pytest.mark.parametrize(
  'path',
  [
    '/static/../server.py',
    '/static/%2e%2e/server.py',
    '/static/..%2fserver.py',
    '/static//etc/passwd',
    '/static/index.html',
    '/node?node=../../watch',
    '/node?node=actor/0%00',
    '/node?node=/etc/passwd',
    '/node?run=7&node=actor/0',
    '/node?run=-1&node=actor/0',
    '/node?run=..&node=actor/0',
    '/video?run=0',
    '/video?run=..%2f..',
    '/config.json',
    '/../config.json',
  ],
)
def test_no_other_file_can_be_named(page, path):
  assert ask(page, path)[0].status == 404


def test_a_video_is_served_from_the_run_directory_only(tmp_path):
  run_dir = tmp_path / 'run'
  run_dir.mkdir()
  (run_dir / 'config.json').write_text((serving.RUNS[0] / 'config.json').read_text())
  (tmp_path / 'outside.gif').write_bytes(b'secret')
  (run_dir / 'video.gif').write_bytes(b'GIF89a')
  os.symlink(tmp_path / 'outside.gif', run_dir / 'newer.gif')
  with serving.serve(run_dir) as address:
    url = urllib.parse.urlsplit(address)
    page = url.port, urllib.parse.parse_qs(url.query)['token'][0]
    reply, body = ask(page, '/video?run=0')
    assert (reply.status, body) == (200, b'GIF89a')
    assert json.loads(ask(page, '/state')[1])['runs'][0]['video_name'] == 'video.gif'


def test_secrets_among_the_options_are_masked(tmp_path):
  run_dir = tmp_path / 'run'
  run_dir.mkdir()
  record = json.loads((serving.RUNS[0] / 'config.json').read_text())
  record['config']['env_options'] = 'api_key=hunter2,rows=5'
  (run_dir / 'config.json').write_text(json.dumps(record))
  with serving.serve(run_dir, serving.RUNS[1]) as address:
    url = urllib.parse.urlsplit(address)
    page = url.port, urllib.parse.parse_qs(url.query)['token'][0]
    body = ask(page, '/state')[1]
    assert b'api_key=***,rows=5' in body and b'hunter2' not in body


def test_a_unix_socket_is_for_its_user_only_and_has_no_port(tmp_path):
  path = tmp_path / 's'
  with serving.serve(serving.RUNS[0], f'--socket={path}') as address:
    token = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)['token'][0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = http.client.HTTPConnection('localhost', timeout=DEADLINE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    assert ask((0, token), '/state', connection=connection)[0].status == 200
  assert not path.exists()


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['/none', '--web'], ['/none', 'no such directory']),
    ([str(serving.RUNS[0]), '--port=80'], ['--port', '--web']),
    ([str(serving.RUNS[0]), '--web', '--port=99999'], ['--port=99999', 'cannot be used']),
    ([str(serving.RUNS[0]), '--web', '--socket=/none/s'], ['--socket=/none/s', 'cannot be used']),
  ],
)
def test_runs_that_cannot_be_served_are_rejected_in_one_sentence(capsys, arguments, words):
  assert watch.main(arguments) == 2
  captured = capsys.readouterr()
  assert captured.out == '' and captured.err.count('\n') == 1
  assert all(word in captured.err for word in words)
