"""Draw the images that MiniGrid's WFC levels learn their patterns from.

Run as `python scripts/wfc_patterns.py` after a change. minigrid names an image for each of its
presets and ships none, so these are designs of our own: `#` is a wall, `.` is floor. The solver
sees each 2x2 or 3x3 piece of an image, at every turn and mirrored, and the image wraps around at
its borders; what it costs grows with the square of the number of different pieces. Where there is
room to shift shapes against each other, levels seldom run into a contradiction.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).resolve().parent.parent / "src/evopolicygym/envs/assets/wfc"

# The presets that are registered.
REGISTERED = {
    "SimpleMaze": """
        .#......
        .#.####.
        .#.#..#.
        .#.##.#.
        .#....#.
        .######.
        ........
    """,
    "ScaledMaze": """
        ..........
        .######.#.
        .#......#.
        .#......#.
        .#..#####.
        .#........
        .#..##....
        .#..##..#.
        .######.#.
        ..........
    """,
    "Fabric": """
        ##.###.#
        #...#...
        ........
        #...#...
        ##.###.#
        #.......
        ........
        #.......
    """,
    "Blackdots": """
        .......
        .#...#.
        ...#...
        .#.....
        ...##..
        .#.....
        .#...#.
    """,
    "Angular": """
        .......
        .##....
        ..##...
        ...##..
        ....##.
        .....#.
        .......
    """,
    "Hogs": """
        ......
        .##...
        .###..
        .###..
        ..#...
        ......
    """,
}
# The presets that are not: reached as `wfc_config="Maze"` and the like.
OTHERS = {
    "Knot": """
        ......
        .####.
        .#..#.
        .#.##.
        ......
        ......
    """,
    "SimpleWall": """
        .......
        .#####.
        .....#.
        .###.#.
        .#...#.
        .#.....
        .......
    """,
    "Office": """
        ##.###...
        #....#...
        .........
        #....#...
        ##.###...
        .........
        .........
    """,
    "Skew2": """
        ......
        .##...
        ..##..
        ...##.
        ......
        ......
    """,
    "Maze": """
        .......
        .#####.
        .#...#.
        .#.#.#.
        ...#...
        .###.#.
        .....#.
    """,
    "Spirals": """
        ........
        .######.
        .#....#.
        .#.##.#.
        .#..#.#.
        .####.#.
        ........
    """,
    "Paths": """
        ##.##
        ##.##
        ...##
        ##...
        ##.##
    """,
    "Mazelike": """
        .....
        .##..
        ..#..
        .....
        .#.#.
    """,
    "DungeonExtr": """
        #######
        #...###
        #......
        #...###
        ##.####
        ##.####
    """,
    "Rooms": """
        ######
        #...##
        ......
        #...##
        ##.###
        ##.###
    """,
    "LessRooms": """
        #######
        #....##
        #......
        #....##
        ###.###
        ###.###
    """,
    "SpiralsNeg": """
        #########
        #.......#
        #.#####.#
        #.#...#.#
        #.#.###.#
        #.#.....#
        #.#######
    """,
    "MagicOffice": """
        .......
        .##.##.
        .#...#.
        ....##.
        .#..#..
        .####..
        .......
    """,
    "Cave": """
        ########
        #...####
        ##...###
        ###...##
        ##...###
        #...####
    """,
    "Lake": """
        .......
        ..##...
        .####..
        .####..
        ..##...
        .......
    """,
}


def draw(rows: str) -> np.ndarray:
    """Return the pixels: walls black, floor white."""
    grey = [[0 if cell == "#" else 255 for cell in row] for row in rows.split()]
    return np.repeat(np.array(grey, np.uint8)[:, :, None], 3, axis=2)


def main() -> None:
    """Write every image."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, rows in {**REGISTERED, **OTHERS}.items():
        Image.fromarray(draw(rows)).save(FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
