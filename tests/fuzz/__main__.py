"""Look for messages that cost too much, guided by coverage: `make fuzz`.

Each kind is tried in a process of its own, as libFuzzer ends the one that it is in. Coverage makes code slow:
what was dear with it is judged again without it. What is too dear then is printed, left in `build/fuzz`, and
belongs into `tests/fuzz/corpus` with what mends it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.judge import CORPUS, wrong
from tests.fuzz.targets import TARGETS

FOUND = Path("build/fuzz")
_NOTED = 40


def one(name: str, seconds: int) -> None:
    """Does not return."""
    import atheris

    with atheris.instrument_imports(include=["kiwi_gw"]):
        from tests.fuzz import targets
    target = targets.TARGETS[name]
    noted = FOUND / name
    dearest: list[float] = []

    def read(data: bytes) -> None:
        before = time.thread_time()
        target.read(data)
        taken = time.thread_time() - before
        if taken > target.seconds and (len(dearest) < _NOTED or taken > dearest[0]):
            dearest.append(taken)
            dearest.sort()
            del dearest[:-_NOTED]
            (noted / f"{taken:09.6f}").write_bytes(data)

    limits = [f"-max_total_time={seconds}", f"-max_len={target.most}", "-rss_limit_mb=2048", "-timeout=20"]
    words = Path(__file__).parent / "words.txt"
    atheris.Setup(["fuzz", str(noted / "grown"), str(CORPUS / name), f"-dict={words}", *limits], read)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each kind")
    parser.add_argument("--one", choices=TARGETS, help=argparse.SUPPRESS)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(TARGETS)}; by default all")
    given = parser.parse_args()
    if given.one:
        one(given.one, given.seconds)
    dear = 0
    for name in given.kinds or TARGETS:
        (FOUND / name / "grown").mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(given.seconds)]
        with (FOUND / f"{name}.log").open("w") as log:
            code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        if code:
            print(f"{name}: ended with {code}, see {FOUND / name}.log", flush=True)
            dear += 1
        for path in sorted(each for each in (FOUND / name).iterdir() if each.is_file()):
            said = wrong(TARGETS[name], path.read_bytes())
            if said:
                dear += 1
                print(f"{name}: {said}: {path}", flush=True)
            else:
                path.unlink()
        print(f"{name}: done", flush=True)
    return 1 if dear else 0


if __name__ == "__main__":
    sys.exit(main())
