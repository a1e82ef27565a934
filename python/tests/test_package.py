"""What `pip install` makes of this directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


class Package(unittest.TestCase):
    def test_wheel(self) -> None:
        """Builds a wheel as pip does, without pip, and has a Python find the package in it."""
        with tempfile.TemporaryDirectory() as directory:
            copy, out = Path(directory, "copy"), Path(directory, "out")
            shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("tests", "__pycache__", "build", "*.egg-info"))
            out.mkdir()
            built = subprocess.run([sys.executable, "-c", "import sys; from setuptools import build_meta; "
                                    "print(build_meta.build_wheel(sys.argv[1]))", str(out)],
                                   cwd=copy, capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr)
            wheel = next(out.glob("polyplane-*.whl"))
            with zipfile.ZipFile(wheel) as parts:
                names = set(parts.namelist())
            wanted = {f"polyplane/{f.name}" for f in (HERE / "polyplane").iterdir() if f.suffix in (".py", ".typed")}
            self.assertEqual({name for name in names if name.startswith("polyplane/")}, wanted)
            self.assertIn("polyplane/py.typed", wanted)
            said = subprocess.run([sys.executable, "-c", "import polyplane; print(polyplane.__file__)"], cwd=directory,
                                  env=dict(os.environ, PYTHONPATH=str(wheel)), capture_output=True, text=True)
            self.assertIn(wheel.name, said.stdout, said.stderr)
