"""Assigns environment groups to the slots of the actor devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agents.agent import Agent
from nodes.inference.env_groups import EnvGroup
from nodes.inference.layout import EnvGroupSpec
from nodes.unrolls.assembler import UnrollAssembler


class DeviceSlots(NamedTuple):
  """The environments of one actor device, by slot; one unused slot if it has none.

  Attributes:
    exploration: float32 `[slots]`.
    environment_ids: integers `[slots]`.
  """

  exploration: np.ndarray
  environment_ids: np.ndarray


def assign(
  agent: Agent, specs: Sequence[EnvGroupSpec], exploration: np.ndarray, num_devices: int
) -> tuple[list[EnvGroup], list[DeviceSlots]]:
  """Assigns groups to the devices round-robin, and gives each environment a slot of its device.

  Args:
    agent: the algorithm.
    specs: the environment groups of a server.
    exploration: float32 `[training environments of the program]`, by environment id.
    num_devices: number of actor devices.

  Returns:
    The groups, in the order of `specs`, and the slots of each device.
  """
  groups: list[EnvGroup] = []
  explorations: list[list[np.ndarray]] = [[] for _ in range(num_devices)]
  ids: list[list[np.ndarray]] = [[] for _ in range(num_devices)]
  for index, spec in enumerate(specs):
    device = index % num_devices
    first_slot = sum(map(len, ids[device]))
    ids[device].append(
      np.arange(spec.first_environment_id, spec.first_environment_id + spec.num_envs)
    )
    if spec.training:
      explorations[device].append(exploration[ids[device][-1]])
      assembler = UnrollAssembler(
        spec.num_envs, agent.unroll_rows, agent.unroll_period, spec.first_environment_id
      )
    else:
      explorations[device].append(np.full(spec.num_envs, agent.evaluation_exploration, np.float32))
      assembler = None
    groups.append(EnvGroup(spec, device, first_slot, assembler))
  unused = DeviceSlots(np.zeros(1, np.float32), np.zeros(1, np.int32))
  slots = [
    DeviceSlots(np.concatenate(e), np.concatenate(i)) if i else unused
    for e, i in zip(explorations, ids, strict=True)
  ]
  return groups, slots
