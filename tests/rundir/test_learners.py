"""Several learners in one run directory."""

from rundir import checkpoints, final_params, learners, saved_params


def test_each_learner_has_its_files_and_the_first_is_where_a_single_one_is(tmp_path):
  run_dir = str(tmp_path)
  assert learners.directories(run_dir) == [run_dir] and learners.counts(run_dir) == {}
  for learner in (0, 2, 10):
    path = learners.directory(run_dir, learner)
    final_params.save(path, b'params %d' % learner)
    counts = {'actor_steps': 100 + learner, 'learner_steps': 20 - learner}
    checkpoints.write(checkpoints.directory(path), counts, b'state', keep=1)
  assert saved_params.read(run_dir).content == b'params 0'
  found = learners.directories(run_dir)
  assert [saved_params.read(path).content for path in found[1:]] == [b'params 2', b'params 10']
  assert learners.counts(run_dir) == {'actor_steps': 312, 'learner_steps': 20}
