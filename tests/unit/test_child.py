"""worker/child.py: nobody is left at work whose worker is gone."""

import os
import subprocess
import sys

import pytest

from worker import child

LIVES_ON = "from worker.child import end_with_parent; end_with_parent(); print('alive')"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for what only Linux has")
@pytest.mark.parametrize(("parent", "told"), [(os.getpid(), "alive\n"), (os.getpid() + 1, "")], ids=["there", "gone"])
def test_a_child_whose_parent_went_before_it_asked_ends_too(parent: int, told: str) -> None:
    environment = {**os.environ, child.PARENT: str(parent)}
    ended = subprocess.run(
        [sys.executable, "-c", LIVES_ON], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    assert (ended.stdout, ended.returncode) == (told, 0 if told else 1)
