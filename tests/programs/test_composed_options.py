"""Configs of groups of options, and the flags that follow from them."""

import dataclasses

import pytest

from agents import options
from agents.options import CheckedOptions, option
from programs import r2d2, registry, sebulba
from programs.options import agent_choice
from tests.programs_under_test import launch, run_main


@dataclasses.dataclass(frozen=True)
class Legs(CheckedOptions):
  legs: int = option(4, 'legs of the animal', at_least=0, at_most=8)
  fur: bool = option(True, 'whether it has fur')

  def _check(self):
    if self.fur and self.legs > 4:
      raise ValueError('--fur is for up to four --legs; leave it out.')


@dataclasses.dataclass(frozen=True)
class Spider(Legs):
  legs: int = 8
  fur: bool = False


@dataclasses.dataclass(frozen=True)
class Zoo(CheckedOptions):
  animal: Legs = Legs(legs=2)
  keeper: object = None
  visitors: int = option(10, 'visitors a day')

  def _check(self):
    if self.visitors and self.animal.legs > 6:
      raise ValueError('--visitors run from --legs=8; set it to 0.')


def test_options_of_groups_are_read_and_replaced_by_their_names():
  zoo = options.make(Zoo, legs=3, visitors=7)
  assert (zoo.animal, zoo.visitors) == (Legs(legs=3), 7)
  assert options.flatten(zoo) == {'legs': 3, 'fur': True, 'visitors': 7}
  assert (options.value(zoo, 'fur'), options.value(zoo, 'wings', 0)) == (True, 0)
  with pytest.raises(KeyError):
    options.value(zoo, 'wings')
  with pytest.raises(TypeError, match="Zoo has no option 'wings'"):
    options.replace(zoo, wings=2)


def test_the_groups_of_an_instance_decide_which_options_there_are():
  zoo = Zoo(animal=Spider(), keeper=Legs(legs=2), visitors=0)
  names = [(leaf.group, leaf.name, leaf.value) for leaf in options.leaves(zoo)]
  assert names[:3] == [('animal', 'legs', 8), ('animal', 'fur', False), ('keeper', 'legs', 2)]


def test_a_class_that_changes_a_default_keeps_text_range_and_owner():
  legs, fur = options.leaves(Spider())
  assert (legs.value, legs.help, legs.owner) == (8, 'legs of the animal', Legs)
  assert fur.value is False and fur.owner is Legs
  with pytest.raises(ValueError, match='--legs is 9: set it to a number from 0 to 8'):
    Spider(legs=9).validate()


@pytest.mark.parametrize(
  'zoo, words',
  [
    (Zoo(animal=Legs(legs=-1)), '--legs is -1'),
    (Zoo(animal=Legs(legs=5)), '--fur is for up to four'),
    (Zoo(animal=Spider()), '--visitors run'),
  ],
)
def test_each_group_checks_itself_and_the_config_what_relates_them(zoo, words):
  Zoo().validate()
  with pytest.raises(ValueError, match=words):
    zoo.validate()


def test_no_two_options_of_a_program_have_the_same_name():
  for program in registry.PROGRAMS:
    for variant in agent_choice.variants(registry.load(program)).values():
      names = [leaf.name for leaf in options.leaves(variant.defaults)]
      assert len(names) == len(set(names)), program


def test_nodes_receive_the_groups_of_the_config_themselves():
  config = options.make(sebulba.Config, run_dir='x', inference_timeout_ms=7.0).resolve()
  (node,) = sebulba.make_program(config).groups['inference_learner']
  assert node._kwargs['serving'].options is config.inference
  assert node._args[-1].run is config.run


def test_an_option_of_another_program_is_refused_with_the_programs_that_have_it(capsys):
  assert run_main('--program=r2d2', '--queue_size=50') == 2
  error = capsys.readouterr().err
  assert error.startswith('error: --queue_size is not an option of this program; leave it out.')
  assert error.endswith(
    'It is one of --program=gala_sebulba, impala, population_sebulba, sebulba.\n'
  )
  assert run_main('--norecord_unrols') == 2
  assert 'did you mean --record_unrolls?' in capsys.readouterr().err


@pytest.mark.slow
def test_help_has_the_options_of_the_chosen_program_alone_a_line_each():
  process = launch('--program=r2d2', '--launcher=slurm', '--help')
  assert process.returncode == 0, process.stderr
  lines = process.stdout.splitlines()
  flags = [line.split('=')[0].strip() for line in lines if line.startswith('  --')]
  assert len(flags) == len(set(flags)) and {'--burn_in', '--slurm_requeue', '--dry_run'} <= {*flags}
  assert not {'--queue_size', '--num_envs', '--vtrace_lambda', '--isolate'} & {*flags}
  names = options.flatten(r2d2.Config()).keys() - {'agent', 'resumes'}
  assert {f'--{name}' for name in names} <= {*flags}
