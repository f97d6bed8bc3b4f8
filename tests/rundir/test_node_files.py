from rundir import node_files


def test_what_nodes_have_written_is_found_under_their_names(tmp_path):
  run_dir = str(tmp_path / 'a [run]*')
  for node in ('my-actor/12', 'actor/0'):
    path = node_files.log_path(run_dir, node)
    (tmp_path / 'a [run]*' / 'logs').mkdir(parents=True, exist_ok=True)
    for written in (path, f'{path}.1', node_files.csv_path(run_dir, node)):
      with open(written, 'w') as f:
        f.write('x')
  assert node_files.find(run_dir, node_files.LOG) == {
    'actor/0': f'{run_dir}/logs/actor-0.log',
    'my-actor/12': f'{run_dir}/logs/my-actor-12.log',
  }
  assert list(node_files.find(run_dir, node_files.CSV).values()) == [
    f'{run_dir}/logs/actor-0.csv',
    f'{run_dir}/logs/my-actor-12.csv',
  ]
  assert node_files.find(str(tmp_path / 'none'), node_files.LOG) == {}
