"""The step of a build that setuptools does not know: wheels for Linux hold compiled kernels.

Where they cannot be compiled, or with ``MANYHANDS_PURE=1``, the wheel is a plain one, and kernels are
compiled where they are first called.
"""

import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

COMPILED = (
    sys.platform == "linux"
    and platform.machine() == "x86_64"
    and not os.environ.get("MANYHANDS_PURE")
    and find_spec("numba") is not None  # tools/build_backend.py asks for it when a wheel is built
)


class BuildWithKernels(build_py):
    def run(self) -> None:
        super().run()
        if COMPILED and not self.editable_mode:
            package = Path(self.build_lib).resolve()
            script = Path(__file__).parent / "tools" / "compile_kernels.py"
            command = [sys.executable, str(script), str(package / "manyhands" / "kernels" / "compiled")]
            path = os.pathsep.join([str(package), *sys.path])  # pip's room for builds is on it
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)  # noqa: S603
            if done.returncode:
                self.warn("the kernels were not compiled: each will be on its first call")


class WithKernels(Distribution):
    def has_ext_modules(self) -> bool:
        return COMPILED


setup(cmdclass={"build_py": BuildWithKernels}, distclass=WithKernels)
