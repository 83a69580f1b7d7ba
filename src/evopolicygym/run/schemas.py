"""Generate `docs/schemas/` from the models: `python -m evopolicygym.run.schemas DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evopolicygym.run.models import DOCUMENTS
from evopolicygym.run.server import session_app

if TYPE_CHECKING:
    from evopolicygym.run.session import Session

__all__ = ["generate"]


def generate() -> dict[str, dict[str, Any]]:
    """Return every committed schema by file name."""
    files: dict[str, dict[str, Any]] = {
        f"{name}.schema.json": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **model.model_json_schema(
                by_alias=True, mode="validation" if name.endswith("-request") else "serialization"
            ),
        }
        for name, model in DOCUMENTS.items()
    }
    # The app's description does not depend on the session that it will serve.
    files["session.openapi.json"] = session_app(cast("Session", None), "").openapi()
    return files


def main(arguments: list[str]) -> None:
    """Write all schemas.

    Args:
        arguments: The target directory.
    """
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in generate().items():
        (directory / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
