"""Validates Kubernetes objects as an API server does, but for its rules that are no schema."""

import functools
import gzip
import pathlib

import jsonschema
import kubernetes_validate
import yaml

KUBERNETES = '1.33'
_CRD = (
  pathlib.Path(__file__).parent.parent.parent / 'third_party/jobset/jobset.x-k8s.io_jobsets.yaml.gz'
)


def validate_jobset(jobset):
  """Raises if it is not a JobSet, or one of its Jobs is none, or anything has a field it should not."""
  jsonschema.Draft202012Validator(_jobset_schema()).validate(jobset)
  for job in jobset['spec']['replicatedJobs']:
    validate(
      {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'x'}, **job['template']}
    )


def validate(manifest):
  """Raises if it is not an object of the kind it says, or has a field that this kind has not."""
  kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@functools.cache
def _jobset_schema():
  crd = yaml.load(gzip.decompress(_CRD.read_bytes()), Loader=yaml.CSafeLoader)
  (version,) = crd['spec']['versions']
  assert version['name'] == 'v1alpha2'
  return _closed(version['schema']['openAPIV3Schema'])


def _closed(schema):
  """Returns the schema with unknown fields forbidden wherever it lists the known ones."""
  if isinstance(schema, list):
    return [_closed(part) for part in schema]
  if not isinstance(schema, dict):
    return schema
  closed = {key: _closed(part) for key, part in schema.items()}
  if isinstance(schema.get('properties'), dict) and schema.get('type') == 'object':
    closed.setdefault('additionalProperties', False)
  return closed
