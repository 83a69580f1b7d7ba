"""PettingZoo's environments and those made like them: one policy plays all the agents."""

from __future__ import annotations

import importlib
import inspect
import logging
import random
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np

from evopolicygym.envs.bridges import declare

__all__ = ["AllAgents", "make", "register"]

# Where environments keep their step limit, and what no game of those that keep none goes beyond.
_KEPT = ("max_cycles", "env.max_cycles", "num_timesteps", "max_turns")
_STEPS = {
    **dict.fromkeys(("catch_v0", "escort_v0", "surround_v0"), 200),  # written into their code
    "chess_v6": 12_700,  # draw after 100 moves without one of 96 pawn moves and 30 captures
    **dict.fromkeys(("connect_four_v3", "moconnect4_v0"), 42),  # cells
    "go_v5": 722,  # may go round in circles: 2 * 19 * 19, as AlphaGo Zero had it
    "hanabi_v5": 97,  # 40 draws, 2 last turns; 8 hints, and one a discard and a colour
    "leduc_holdem_v4": 8,  # 2 rounds of check, 2 raises, call
    "moingenious_v0": 42,  # 85 free cells, 2 a tile
    "mosame_game_v0": 112,  # 225 cells, at least 2 a move
    "texas_holdem_v4": 24,  # 4 rounds of check, 4 raises, call
    "texas_holdem_no_limit_v6": 208,  # 200 chips, at least one a raise; 4 rounds of check and call
    "tictactoe_v3": 9,  # cells
}
# Sections of the docstrings; what has another title belongs to the section before.
_SECTIONS = (
    r"observation|action|reward|terminat|truncat|start|state"
    r"|argument|parameter|version|credit|manual|render"
)


def register(*packages: str) -> None:
    """Declare `pettingzoo/NAME_vN` for every such module; none of them is imported.

    Args:
        *packages: Packages that have them, at any depth.
    """
    for package in packages:
        found = None
        with suppress(ModuleNotFoundError):
            found = find_spec(package)
        for root in (found and found.submodule_search_locations) or ():
            for file in sorted(Path(root).rglob("*_v*.py")):
                if re.fullmatch(r"\w+_v\d+", file.stem):
                    path = file.relative_to(root).with_suffix("")
                    declare(
                        f"pettingzoo/{file.stem}", make, module=".".join((package, *path.parts))
                    )


def make(module: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the environment of a module.

    Args:
        module: Name of a module with `env`, or `parallel_env` where all agents act at once.
        **options: What that is called with.
    """
    found = importlib.import_module(module)
    source = sys.modules[found.raw_env.__module__]
    dice = _Dice() if module.startswith("momaland.") else nullcontext()
    if module.startswith("pettingzoo.atari."):
        # The ROMs are in ale_py, which registers environments of its own if it is imported.
        ale = find_spec("ale_py")
        if ale is None or ale.origin is None:
            raise ModuleNotFoundError("No module named 'ale_py'", name="ale_py")
        options = {"auto_rom_install_path": str(Path(ale.origin).parent / "roms"), **options}
    if module.endswith("moroute_choice_v0"):
        # From 3.6 on networkx wants to be told what the edges are called in momaland's files.
        nx: Any = importlib.import_module("networkx")
        read = partial(nx.node_link_graph, edges="links")
        attributes = nx.get_edge_attributes
        vars(source)["nx"] = SimpleNamespace(node_link_graph=read, get_edge_attributes=attributes)
    # It warns of each illegal move.
    logging.getLogger("pettingzoo.utils.env_logger").setLevel(logging.ERROR)
    with dice:
        env = getattr(found, "parallel_env", found.env)(**options)
    own = type(env.unwrapped).__doc__ or ""

    class Documented(AllAgents):
        __doc__ = _documentation(own if "## " in own else source.__doc__ or own)

    return Documented(env, module, dice)


class AllAgents(gymnasium.Env[Any, Any]):
    """All agents of an environment, played by one policy.

    Attributes:
        step_limit: Steps, or 0 if there is no known limit.
        texts: What the task text says about it.
        parameters: `reward_weights`, a weight an objective, where rewards are vectors.
    """

    def __init__(self, env: Any, module: str, dice: AbstractContextManager[Any]) -> None:
        self._agents = {str(agent): agent for agent in env.possible_agents}
        self._spaces = {name: env.observation_space(a) for name, a in self._agents.items()}
        self._none = {name: _member(space) for name, space in self._spaces.items()}
        # Ordered, or Gymnasium sorts the agents.
        agents = gs.Dict(OrderedDict(self._spaces))
        self.observation_space = gs.Dict(
            {"active": gs.MultiBinary(len(self._agents)), "agents": agents}
        )
        self.action_space = gs.Dict(
            OrderedDict((name, env.action_space(agent)) for name, agent in self._agents.items())
        )
        self._parallel, inner = not hasattr(type(env), "last"), env.unwrapped
        masked = any("action_mask" in getattr(s, "spaces", ()) for s in self._spaces.values())
        self._objectives, self.parameters = 0, {}
        if hasattr(inner, "reward_space"):
            self._objectives = inner.reward_space(env.possible_agents[0]).shape[0]
            self.parameters["reward_weights"] = [1 / self._objectives] * self._objectives
            if masked:
                # PettingZoo's have this around them, momaland's raise an exception.
                wrappers = importlib.import_module("pettingzoo.utils.wrappers")
                env = wrappers.TerminateIllegalWrapper(env, -1.0)
        self._env, self._dice = env, dice
        self._ended: dict[str, bool] = {}
        self.step_limit = _STEPS.get(module.rpartition(".")[2], 0)
        for path in _KEPT:
            with suppress(AttributeError):
                self.step_limit = int(attrgetter(path)(inner))
        self.texts = _texts(len(self._agents), self._parallel, masked, self._objectives)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an Episode."""
        super().reset(seed=seed)
        self._ended = {}
        with self._dice as generators:
            if generators is not None and seed is not None:
                generators.seed(seed)
            first = self._env.reset(seed=seed)
            return self._observation(first[0] if self._parallel else None), {}

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Let the agents act that are active."""
        env = self._env
        with self._dice:
            if self._parallel:
                actions = {agent: action[str(agent)] for agent in env.agents}
                seen, rewards, terminated, truncated, _ = env.step(actions)
                if truncated is getattr(env.unwrapped, "terminations", None):
                    terminated, truncated = truncated, terminated  # some of momaland's
            else:
                env.step(action[str(env.agent_selection)])
                seen, rewards = None, dict(env.rewards)
                terminated, truncated = dict(env.terminations), dict(env.truncations)
            for agent in terminated:
                if terminated[agent] or truncated[agent]:
                    self._ended.setdefault(str(agent), bool(terminated[agent]))
            while not self._parallel and env.agents and str(env.agent_selection) in self._ended:
                env.step(None)
            observation = self._observation(seen)
        components: dict[str, float] = {}
        for agent, reward in rewards.items():
            if self._objectives:
                vector = np.broadcast_to(np.asarray(reward, np.float64), self._objectives)
                for number, value in enumerate(vector.tolist()):
                    components[f"{agent}/objective_{number}"] = value
            else:
                components[str(agent)] = float(reward)
        total = sum(components.values()) / (self._objectives or 1)
        done = not observation["active"].any()
        natural = all(self._ended.get(name) for name in self._agents)
        info = {"reward_components": components}
        return observation, total, done and natural, done and not natural, info

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
        for name in ("observation_space", "action_space"):  # some of momaland's keep all instances
            getattr(getattr(type(self._env.unwrapped), name), "cache_clear", lambda: None)()

    def _observation(self, seen: Mapping[Any, Any] | None) -> dict[str, Any]:
        env = self._env
        playing = env.agents if self._parallel else env.agents and [env.agent_selection]
        active = {str(agent): agent for agent in playing if str(agent) not in self._ended}
        agents = dict(self._none)
        for name, agent in active.items():
            value = env.observe(agent) if seen is None else seen[agent]
            agents[name] = _member(self._spaces[name], value)
        return {"active": np.array([n in active for n in agents], np.int8), "agents": agents}


class _Dice(AbstractContextManager["_Dice"]):
    """The global random generators in a state of its own, for code that draws from them."""

    def __init__(self) -> None:
        self._states = random.Random(0).getstate(), np.random.RandomState(0).get_state()

    def __enter__(self) -> _Dice:
        others = random.getstate(), np.random.get_state()
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])
        self._states = others
        return self

    def __exit__(self, *_: object) -> None:
        self.__enter__()  # swaps them back

    def seed(self, seed: int) -> None:
        """Seed them; to be called inside."""
        random.seed(seed)
        np.random.seed(seed)


def _member(space: gs.Space[Any], value: Any = None) -> Any:
    """Return a value in the space's own types, or without one the member nearest to 0."""
    if isinstance(space, gs.Dict):
        return {k: _member(s, value and value[k]) for k, s in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple(map(_member, space.spaces, value or [None] * len(space.spaces)))
    if isinstance(space, gs.Discrete):
        last = space.start + space.n - 1
        return int(min(max(0, space.start), last) if value is None else value)
    if value is not None:
        return np.asarray(value, space.dtype)
    zeros = np.zeros(space.shape or (), space.dtype)
    return np.clip(zeros, space.low, space.high) if isinstance(space, gs.Box) else zeros


def _documentation(text: str) -> str:
    """Return a docstring without title, picture and table, and with one level of headings."""

    def heading(match: re.Match[str]) -> str:
        known = re.search(_SECTIONS, match[1].lower())
        return f"## {match[1]}" if known else f"**{match[1]}**"

    text = re.sub(r"\A#+ .*\n", "", inspect.cleandoc(text))
    text = re.sub(r"(?m)^##+ +(.+)$", heading, text)
    first, *rest = re.split(r"(?m)^(?=## )", text)
    noise = r"(?ms)^```\{figure\}.*?^```$|^\|[^\n]*$|^This environment is part of [^\n]*$"
    return "".join((re.sub(noise, "", first), *rest))


def _texts(count: int, parallel: bool, masked: bool, objectives: int) -> dict[str, str]:
    when = "all that are active act at once" if parallel else "one of them acts in each step"
    mask = (
        " Where an agent's observation has an `action_mask`, only actions marked 1 are legal; any "
        "other ends the game, with the reward -1 for that agent and 0 for the others."
    )
    vector = f" An agent's reward is the mean of {objectives} objectives, given one by one."
    return {
        "Objective": f"One policy plays all agents ({count}): {when}. The score is the sum of the "
        "rewards of all agents.",
        "Observation": "`active` has a number for each agent, in the order of `agents`: 1 if its "
        "next action counts, or 0. `agents` has what each agent observes; for one that is not "
        "active it is the value nearest to 0 instead.",
        "Action": "An action for each agent; those of agents that are not active are ignored."
        + mask * masked,
        "Reward": "The sum of the rewards of all agents. They are in `info` of every step, as "
        "`reward_components`." + vector * bool(objectives),
        "Termination": "The Episode ends when no agent is active: terminated if the game ended for "
        "each of them, truncated if a time limit stopped any.",
        "Notes": "Where agents play against each other, the sum of their rewards does not tell how "
        "well any of them plays: in a zero-sum game it is 0, whatever they do that is legal.",
    }
