"""Setuptools, which for a wheel also needs what the package needs: its kernels are compiled by running it."""

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    plain = build_meta.get_requires_for_build_wheel(config_settings)
    if os.environ.get("MANYHANDS_PURE"):
        return [*plain]
    dependencies: list[str] = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["dependencies"]
    return [*plain, *dependencies]
