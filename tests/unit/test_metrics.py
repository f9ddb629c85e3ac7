"""api/metrics.py with several processes: what the dead counted stays, what they held does not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).parents[2]

_DIES = f"""
import os
from api import metrics
metrics.TEXTS.inc(3)
metrics.IN_FLIGHT.set(5)
os.kill(os.getpid(), {signal.SIGKILL:d})
"""
_TELLS = """
from api import metrics
metrics.TEXTS.inc(4)
metrics.IN_FLIGHT.set(1)
print(metrics.exposition(several_processes=True).decode())
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With the variable that prometheus_client reads when it is imported."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, check=False, cwd=HOUSE, capture_output=True, text=True)


def test_what_a_killed_front_end_held_is_not_told_for_ever(tmp_path: Path) -> None:
    """Without a supervisor nobody else would say that it is dead."""
    assert run(_DIES, tmp_path).returncode == -signal.SIGKILL
    told = run(_TELLS, tmp_path)
    assert told.returncode == 0, told.stderr
    assert "fillmask_texts_total 7.0" in told.stdout
    assert "fillmask_in_flight 1.0" in told.stdout
