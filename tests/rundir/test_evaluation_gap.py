"""The remark on a run whose final evaluation is far below the returns of its training."""

import json
import math

import pytest

from rundir import evaluation_gap

NAN = math.nan
HEADER = 'seconds,episodes,episode_return\n'


def remark(folder, evaluation, stderr, *reports):
  """Writes a run with reports of (episodes, mean return); returns the remark."""
  (folder / 'logs').mkdir()
  lines = ''.join(f'{i},{count},{mean}\n' for i, (count, mean) in enumerate(reports))
  (folder / 'logs' / 'inference_learner-0.csv').write_text(HEADER + lines)
  summary = {'evaluator_return': evaluation, 'evaluator_return_stderr': stderr}
  (folder / 'summary.json').write_text(json.dumps(summary))
  return evaluation_gap.remark(str(folder))


def test_an_evaluation_far_below_training_is_explained(tmp_path):
  # The earlier report is not among the last 100 episodes.
  said = remark(tmp_path, 0.105, 0.03, (500, 0.0), (60, 0.3), (0, NAN), (60, 0.376))
  assert said.startswith(
    'note: the final evaluation returned 0.105, far below the 0.338 of the last 120 training episodes.'
  )
  assert f'evaluate.py {tmp_path} --sample' in said and '\n' not in said


@pytest.mark.parametrize(
  ('evaluation', 'stderr', 'reports'),
  [
    (500, 0, [(100, 480)]),  # Above, as usual.
    (0.3, 0.02, [(100, 0.338)]),  # Less than a quarter below.
    (0.105, 0.1, [(100, 0.338)]),  # Within the noise of the evaluation.
    (-170, 1, [(100, -140)]),
    (0.105, 0.03, [(19, 0.338)]),  # Too few episodes.
    (0.105, 0.03, []),
    (NAN, NAN, [(100, 0.338)]),  # Without an evaluator.
  ],
)
def test_other_runs_have_no_remark(tmp_path, evaluation, stderr, reports):
  assert remark(tmp_path, evaluation, stderr, *reports) == ''


def test_a_directory_without_a_summary_has_no_remark(tmp_path):
  assert evaluation_gap.remark(str(tmp_path)) == ''
