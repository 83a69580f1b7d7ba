"""Atari games: what ale-py's source says of them, and the step limit that its frames come to."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

__all__ = ["wrap"]

_AGAINST = ("boxing", "double_dunk", "fishing_derby", "hangman", "ice_hockey", "pong", "surround")
_BOARD = ("backgammon", "tic_tac_toe_3d", "video_chess", "video_checkers")
# Read in ale-py 0.12.1; the other games give the change of their score.
_REWARDS = {
    **dict.fromkeys(_AGAINST, "the change of your score minus the opponent's"),
    **dict.fromkeys(_BOARD, "1 for a game that is won, -1 for one that is lost"),
    "adventure": "1 when the chalice is in the yellow castle",
    "blackjack": "the change of your chips",
    "earthworld": "1 for each clue that is found",
    "enduro": "1 for each car that is passed, -1 for each that passes",
    "freeway": "1 for each crossing",
    "haunted_house": "-1 for each match that is used, 100 for the escape with the urn",
    "miniature_golf": "for each hole that is finished, its par minus the strokes",
    "othello": "the change of white's discs minus black's",
    "skiing": "minus the time that passed, in hundredths of a second",
    "superman": "at the end, 5999 minus the seconds that it took",
    "tennis": "the change of your points minus the opponent's, or of the games after each game",
    "video_cube": "the change of the number of finished faces, -1 when time is up",
    "word_zapper": "1 for each of three rounds",
}
_SCREEN = "The screen after the last frame of the step: row, column{}, from the upper left."
_OBSERVATIONS = {
    "rgb": _SCREEN.format(" and red, green, blue"),
    "grayscale": _SCREEN.format(""),
    "ram": "The console's memory after the last frame of the step.",
}
_STICK = "The radius of the stick (beyond 0.5 an axis counts), its angle, and fire (beyond 0.5)."


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Say what is known, and set the step limit unless one is given."""
    if env.spec is None or not str(env.spec.entry_point).startswith("ale_py."):
        return env  # something else that is spelled like an old name
    options = env.spec.kwargs
    inner: Any = env.unwrapped
    outer = env
    frames, skip = options.get("max_num_frames_per_episode"), options.get("frameskip", 4)
    least, most = (skip, skip) if isinstance(skip, int) else (skip[0], skip[1] - 1)
    if frames and env.spec.max_episode_steps is None:
        outer = TimeLimit(env, -(-frames // least))
    game, odds = options["game"], options.get("repeat_action_probability", 0.25)
    span = (
        f"{least} to {most} frames, at random"
        if least < most
        else f"{least} frame{'s' * (least > 1)}"
    )
    meanings = "\n".join(f"- `{n}`: {name}" for n, name in enumerate(inner.get_action_meanings()))
    vars(outer)["texts"] = {
        "Objective": f"Play {game.replace('_', ' ').title()} on an Atari 2600, for the largest sum "
        "of rewards.",
        "Observation": _OBSERVATIONS[options.get("obs_type", "rgb")],
        "Action": _STICK if options.get("continuous") else meanings,
        "Reward": "The sum over the frames of the step, not clipped. A frame gives "
        f"{_REWARDS.get(game, 'the change of the score')}.",
        "Termination": "Terminated when the game is over; one of several lives is not the end."
        + f" Truncated after {frames} frames." * bool(frames),
        "Notes": f"A step is {span}. In each frame the action of the frame before goes on instead "
        f"with probability {odds}.",
    }
    return outer
