"""Prints what W&B's files of offline runs hold, as JSON; runs in W&B's environment."""

import glob
import json
import sys

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

runs = []
for path in sorted(glob.glob(f'{sys.argv[1]}/wandb/offline-run-*/run-*.wandb')):
  run = {'id': '', 'config': {}, 'history': [], 'summary': {}, 'exit_code': None}
  store = DataStore()
  store.open_for_scan(path)
  while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record.FromString(data)
    kind = record.WhichOneof('record_type')
    if kind == 'run':
      run['id'] = record.run.run_id
      run['config'] |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
    elif kind == 'history':
      run['history'].append(
        {'/'.join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
      )
    elif kind == 'summary':
      for u in record.summary.update:
        run['summary']['/'.join(u.nested_key) or u.key] = json.loads(u.value_json)
    elif kind == 'exit':
      run['exit_code'] = record.exit.exit_code
  runs.append(run)
print(json.dumps(runs))
