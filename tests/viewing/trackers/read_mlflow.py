"""Prints what MLflow has of its runs, as JSON; runs in MLflow's environment."""

import json
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1], registry_uri=sys.argv[1])
runs = []
for run in client.search_runs([client.get_experiment_by_name('launchpod').experiment_id]):
  number = run.info.run_id
  histories = {
    name: [[m.step, m.timestamp, m.value] for m in client.get_metric_history(number, name)]
    for name in run.data.metrics
  }
  files = [a.path for folder in (None, 'videos') for a in client.list_artifacts(number, folder)]
  runs.append(
    {
      'status': run.info.status,
      'tags': run.data.tags,
      'params': run.data.params,
      'metrics': histories,
      'files': files,
    }
  )
print(json.dumps(runs))
