"""Stop train, benchmark and reconstruct at random moments, in four ways; see what is left; let them go on.

    python -m benchmarks.faults [--rounds 30] [--commands train benchmark reconstruct] [--faults kill full …]

kill: SIGKILL. term: SIGTERM. full: the disk is full (a small tmpfs; where one may not be mounted, a limit on
the size of files). memory: the address space is limited. Each round begins in an empty folder. After the
fault every file must be whole or absent; after the next run, which is not disturbed, there must be what an
undisturbed run writes, and no temporary file. Exits with 1 where that is not so.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.common import or_explain, print_machine, print_rows
from benchmarks.faults_files import broken, differences, temporary
from benchmarks.faults_work import COMMANDS, prepare, warm_up
from wsdesc.core.errors import InputError

FAULTS = ("kill", "term", "full", "memory")
_ROOM = 64 << 20  # bytes of the disk that is not full


Case = tuple[str, str]  # command and fault


class Ended(NamedTuple):
    """How a run ended."""

    code: int  # negative: by that signal
    seconds: float
    growth: int  # bytes of address space that it took
    said: str


def start(arguments: list[str], log: Path, limits: dict[int, int]) -> int:
    """Fork a process that runs the command; libraries and kernels are loaded already. Its id."""
    output = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    child = os.fork()
    if child:
        os.close(output)
        return child
    code = 3
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))
        sys.argv = ["wsdesc", *arguments]
        from wsdesc.cli.app import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            Path(f"{log}.growth").write_text(str(address_space("VmPeak")))
        finally:
            os._exit(code)  # a child must never go on with what is its parent's


def finish(child: int, log: Path, began: float) -> Ended:
    """Wait for it."""
    _, status = os.waitpid(child, 0)
    grown = Path(f"{log}.growth")
    growth = int(grown.read_text() or 0) - address_space("VmSize") if grown.exists() else 0
    grown.unlink(missing_ok=True)
    said = log.read_text(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), time.monotonic() - began, growth, said)


def run(arguments: list[str], log: Path, limits: dict[int, int] | None = None) -> Ended:
    """From start to end."""
    began = time.monotonic()
    return finish(start(arguments, log, limits or {}), log, began)


def address_space(which: str) -> int:
    """VmSize or VmPeak of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


class Disk:
    """A folder on a file system of a size that can be changed, or an ordinary one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(place))

    def _mount(self, *arguments: str) -> bool:
        if shutil.which("mount") is None:
            return False
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0

    def resize(self, size: int) -> None:
        """Have so many bytes in all."""
        self._mount("-o", f"remount,size={max(4096, size)}", str(self.place))

    def close(self) -> None:
        """Give it back."""
        if self.mounted:
            subprocess.run(["umount", str(self.place)], check=True)


def disturb(fault: str, arguments: list[str], log: Path, disk: Disk, whole: Ended, size: int) -> Ended:
    """Run the command once, with one fault at a random moment."""
    chance = random.random()
    if fault in ("kill", "term"):
        began = time.monotonic()
        child = start(arguments, log, {})
        time.sleep(chance * whole.seconds)
        os.kill(child, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        return finish(child, log, began)
    if fault == "memory":
        limit = address_space("VmSize") + int(chance * whole.growth)
        return run(arguments, log, {resource.RLIMIT_AS: limit})
    if not disk.mounted:
        return run(arguments, log, {resource.RLIMIT_FSIZE: int(chance * size)})
    disk.resize(int(chance * size))
    try:
        return run(arguments, log)
    finally:
        disk.resize(_ROOM)


def judge(fault: str, ended: Ended, out: Path, code: int) -> list[str]:
    """What is wrong about how a disturbed run ended and what it left; `code` is for one that was quicker."""
    wrong = [f"broken: {name}" for name in broken(out)]
    if fault in ("term", "full"):
        wrong += [f"left: {name}" for name in temporary(out)]
    if fault == "full" and (ended.code not in (code, 2) or "Traceback" in ended.said):
        wrong.append(f"ended with {ended.code}: {ended.said[-300:]}")
    early = ended.code == -signal.SIGTERM and not ended.said  # it had not begun, and not said what to do then
    if fault == "term" and ended.code not in (code, 143) and not early:
        wrong.append(f"ended with {ended.code}: {ended.said[-300:]}")
    return wrong


def one_round(
    fault: str, command: str, data: Path, disk: Disk, reference: Path, whole: Ended
) -> tuple[bool, list[str]]:
    """Disturb, look, go on, compare; whether it was stopped, and what was wrong."""
    out, log = disk.place / "out", data / "log.txt"
    arguments = COMMANDS[command](data, out)
    size = sum(path.stat().st_size for path in reference.rglob("*") if path.is_file())
    try:
        ended = disturb(fault, arguments, log, disk, whole, size)
        wrong = judge(fault, ended, out, whole.code)
        again = run(arguments, log)
        if again.code != whole.code:
            wrong.append(f"the next run ended with {again.code}: {again.said[-300:]}")
        wrong += [f"differs: {name}" for name in differences(reference, out)]
        wrong += [f"stayed: {name}" for name in temporary(out)]
        return ended.code != whole.code, wrong
    finally:
        shutil.rmtree(out, ignore_errors=True)


def undisturbed(command: str, data: Path, disk: Disk) -> tuple[Path, Ended]:
    """Run a command from start to end; the folder of what it wrote, and how it ended."""
    out, reference = disk.place / "out", data / f"reference-{command}"
    whole = run(COMMANDS[command](data, out), data / "log.txt")
    if whole.code not in (0, 1) or broken(out):
        raise InputError(f"{command} fails undisturbed, with {whole.code}: {whole.said} {broken(out)}")
    shutil.move(out, reference)
    return reference, whole


def all_rounds(data: Path, disk: Disk, o: argparse.Namespace) -> tuple[Counter[Case], ...]:
    """How often each case was tried, was stopped by its fault, and went wrong; and what went wrong."""
    prepare(data)
    warm_up(data)
    references = {command: undisturbed(command, data, disk) for command in o.commands}
    tried, stopped, bad, failures = Counter[Case](), Counter[Case](), Counter[Case](), Counter[Case]()
    for case in o.rounds * list(product(o.commands, o.faults)):
        command, fault = case
        was_stopped, wrong = one_round(fault, command, data, disk, *references[command])
        tried[case] += 1
        stopped[case] += was_stopped
        bad[case] += bool(wrong)
        failures.update((f"{command}, {fault}", what) for what in wrong)
        print(f"{command}, {fault}, {tried[case]}: {wrong or 'fine'}", file=sys.stderr, flush=True)
    return tried, stopped, bad, failures


def main(o: argparse.Namespace) -> None:
    random.seed(o.seed)
    torch.set_num_threads(1)  # forks have no threads
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "disk")
        try:
            tried, stopped, bad, failures = all_rounds(Path(folder), disk, o)
        finally:
            disk.close()
    print_machine()
    print(f"full disk: {'a tmpfs' if disk.mounted else 'a limit on the size of files'}; seed {o.seed}")
    header = ["command", "fault", "rounds", "stopped by it", "broken or different"]
    print_rows([header, *([*case, str(n), str(stopped[case]), str(bad[case])] for case, n in tried.items())])
    for (case, what), count in failures.items():
        print(f"{case}: {count} × {what}")
    if failures:
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--rounds", type=int, default=30, help="of each command and fault")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
