"""Several learners in one run directory."""

import msgpack

from rundir import checkpoints, final_params, learners, run_end, saved_params


def test_each_learner_has_its_files_and_the_first_is_where_a_single_one_is(tmp_path):
  run_dir = str(tmp_path)
  assert learners.directories(run_dir) == [run_dir] and learners.counts(run_dir) == {}
  for learner in (0, 2, 10):
    path = learners.directory(run_dir, learner)
    final_params.save(path, b'params %d' % learner)
    steps = 100 + learner
    counts = {'actor_steps': steps, 'environment_frames': 4 * steps, 'learner_steps': 20 - learner}
    checkpoints.write(checkpoints.directory(path), counts, b'state', keep=1)
  assert learners.num_with_checkpoint(run_dir) == 3
  run_end.record_end(run_dir, 0, 1.0)
  assert saved_params.read(run_dir).content == b'params 0'
  found = learners.directories(run_dir)
  finals = [saved_params.read(path, 'final').content for path in found[1:]]
  assert finals == [b'params 2', b'params 10']
  expected = {'actor_steps': 312, 'environment_frames': 1248, 'learner_steps': 20}
  assert learners.counts(run_dir) == expected


def test_a_run_that_goes_on_after_its_end_has_the_parameters_of_its_newest_checkpoint(tmp_path):
  run_dir = str(tmp_path)
  final_params.save(run_dir, msgpack.packb({'of': 'the end'}))
  run_end.record_end(run_dir, 0, 1.0)
  state = msgpack.packb({'params': {'of': 'later'}})
  checkpoints.write(checkpoints.directory(run_dir), {'learner_steps': 9}, state, keep=1)
  assert msgpack.unpackb(saved_params.read(run_dir).content) == {'of': 'the end'}
  run_end.delete(run_dir)
  assert msgpack.unpackb(saved_params.read(run_dir).content) == {'of': 'later'}
  assert msgpack.unpackb(saved_params.read(run_dir, 'final').content) == {'of': 'the end'}
