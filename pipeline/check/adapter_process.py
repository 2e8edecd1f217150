"""MSAdapter in a process of its own: there ``torch`` is MSAdapter's, here it is the native one. Calls and answers go through a pipe.

``python -m opassay.pipeline.check.adapter_process DESCRIPTOR DEVICE`` is the other process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import opassay
from opassay.pipeline.check.cases import CannotRun
from opassay.pipeline.check.mindspore_calls import Answer, Call, MindSporeSide

_PR_SET_PDEATHSIG: Final = 1
_READY: Final = "ready"


class AdapterProcess:
    """The tested side in another process.

    Parameters
    ----------
    device : str
        ``cpu``, ``npu:1``.
    adapter : sequence of str
        Folders with MSAdapter's torch.
    """

    def __init__(self, device: str, adapter: Sequence[str]) -> None:
        self._device, self._adapter = device, tuple(adapter)
        self._start()

    def run(self, call: Call) -> Answer:
        """Run a call there.

        Raises
        ------
        CannotRun
            If the process died; the next call gets a fresh one.
        """
        if self._process.poll() is not None:
            self._start()
        try:
            self._pipe.send(call)
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise CannotRun(f"the process with MSAdapter died ({self._process.wait()})") from None
        return answer if isinstance(answer, Answer) else Answer(failed=str(answer))

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        home = str(Path(opassay.__file__).parents[1])
        behind = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*self._adapter, *behind, home])}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), self._device],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._pipe = Connection(ours.detach())
        try:
            told = self._pipe.recv()
        except (EOFError, OSError):
            told = f"it died ({self._process.wait()})"
        if told != _READY:
            raise CannotRun(f"MSAdapter cannot be used: {told}")


def serve(descriptor: int, device: str) -> None:
    """Answer calls until the pipe ends."""
    with contextlib.suppress(OSError, AttributeError):  # Linux: do not outlive the process that asks
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with Connection(descriptor) as pipe:
        try:
            tested = MindSporeSide(device, adapter=True)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
            return
        pipe.send(_READY)
        with contextlib.suppress(EOFError):
            while True:
                pipe.send(tested.run(pipe.recv()))


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
