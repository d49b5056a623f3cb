"""A script without a main guard cannot start processes: it is told so, and nothing else."""

import subprocess
import sys

SCRIPT = """
import wsdesc
from wsdesc.learning.sources import RoomPairs
from wsdesc.core.executors import end_if_starting

end_if_starting()  # as train, distill and ablate do
pairs = RoomPairs(0, rooms=2, pairs_per_room=2, min_coverage=0.0, workers=1)
try:
    pairs.pair(0)
except wsdesc.WSDescError as error:
    print(error)
pairs.close()
"""


def test_processes_that_make_rooms_need_a_main_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120
    )
    assert "__main__" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
