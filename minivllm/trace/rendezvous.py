"""Two processes that take turns, so that a recording across them is the same every time.

Processes that run freely give other steps from run to run. On the logical clock, caller and core therefore meet: one of
the two has the turn, and the other waits.

- The caller has it first. It gives it away when it waits for an output: so all that it has added is there at step 1.
- The core gives it back as soon as the step after an output has been planned: so the core is one step ahead of its
  caller, as it would be by itself, and an abort comes too late for exactly that step. It also gives it back when it has
  nothing more to do.
- A message is taken in by the other side's thread before the sender goes on.

Owns: the socket between the two sides, the stamps that they share, and the loop of a core that takes turns.
Interface: CoreSide, CallerSide; SharedClock.
Must not know: what a message means. It replaces methods on live objects, as the recorder does, and in no other run.
"""

import mmap
import shutil
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

from minivllm.errors import EngineDeadError
from minivllm.trace.clock import LOGICAL_TICK_NS, LogicalClock

TICKS = struct.Struct("<q")
POLL_SECONDS = 0.5
FOLDER_PREFIX = "minivllm-"
SOCKET, CLOCK = "meet", "clock"  # files of the folder that only the two sides can enter
GO, BYE, SENT, RECEIVED = "go", "bye", "sent", "received"


class SharedClock(LogicalClock):
    """A logical clock of two processes: its ticks are in a file that both have mapped. Only who has the turn looks."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with open(path, "r+b") as file:
            self._ticks_of_both = mmap.mmap(file.fileno(), TICKS.size)

    def __call__(self) -> int:
        (ticks,) = TICKS.unpack(self._ticks_of_both)
        self._ticks_of_both[:] = TICKS.pack(ticks + 1)
        self.latest = ticks * LOGICAL_TICK_NS
        return self.latest


class _Line:
    """The socket, as lines of text. `open` is False once the other side has gone or said goodbye."""

    def __init__(self, connection: socket.socket) -> None:
        self.file = connection.makefile("rw", encoding="ascii", newline="\n")
        connection.close()  # the file keeps it
        self.open = True

    def say(self, text: str) -> None:
        try:
            if self.open:
                self.file.write(f"{text}\n")
                self.file.flush()
        except OSError:
            self.open = False

    def hear(self) -> str:
        """The next line; "" from a side that is not there any more."""
        try:
            line = self.file.readline().strip() if self.open else ""
        except OSError:
            line = ""
        self.open = line not in ("", BYE)
        return line


class CoreSide:
    """The core's side: made before the caller may send, then `run_busy_loop` takes the place of the core's own.

    trace: the path that both sides know. It has the address until they have met.
    """

    def __init__(self, trace: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        (self.folder / CLOCK).write_bytes(TICKS.pack(0))
        self.clock = SharedClock(self.folder / CLOCK)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / SOCKET))
        self.listener.listen(1)
        self.address = _address_file(trace)
        self.address.write_text(str(self.folder), encoding="utf-8")
        self.line: _Line | None = None
        self.num_sent = 0  # messages since the caller had the turn
        self._sent, self._may_receive = threading.Semaphore(0), threading.Semaphore(0)
        self._free = False  # nobody waits for anybody any more

    def attach(self, core: Any) -> None:
        """Take turns from now on. Called when the core's methods are watched: what waits, waits outside of events."""
        self.core = core
        executor = core.model_executor
        self._free_loop, self._receive, self._send = core.run_busy_loop, core.receive, core.send
        self._execute_model = executor.execute_model
        core.run_busy_loop, core.receive, core.send = self.run_busy_loop, self.receive, self.send
        executor.execute_model = self.execute_model

    def run_busy_loop(self) -> None:
        """As the core's own, but that it waits for its turn; and like that once the caller has said goodbye."""
        core = self.core
        self.line = self._accept()
        self._wait_for_turn()
        while self.line is not None and self.line.open:
            self._take_in()
            if core.scheduler.has_requests():
                outputs, _ = core.step()
                if outputs is not None:
                    core.output_queue.put(outputs)
                    self._sent.acquire()
            if not core.scheduler.has_requests() and core.input_queue.empty():
                core._clear_aborts()
                self._give_turn(idle=True)
        self._free_loop()

    def _accept(self) -> _Line | None:
        self.listener.settimeout(POLL_SECONDS)
        try:
            while not self.core.shutdown_requested:
                try:
                    connection, _ = self.listener.accept()
                except TimeoutError:
                    continue
                connection.setblocking(True)
                return _Line(connection)
            return None
        finally:
            self.listener.close()
            self.address.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)  # what is mapped stays

    def _take_in(self) -> None:
        """All that has arrived while the caller had the turn."""
        while not self.core.input_queue.empty():
            request_type, payload = self.core.input_queue.get()
            self.core._handle_client_request(request_type, payload)
            if request_type.name == "UTILITY":
                self._sent.acquire()

    def _give_turn(self, idle: bool = False) -> None:
        num_sent, self.num_sent = self.num_sent, 0
        self.line.say(f"{num_sent} {int(idle)}")
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Meanwhile the caller may send."""
        while self.line is not None and self.line.hear() == SENT:
            self._may_receive.release()
        if self.line is None or not self.line.open:
            self._free = True
            self._may_receive.release()

    def execute_model(self, plan: Any) -> Any:
        """The step is planned: the caller's turn, if there is something for it."""
        if self.num_sent and self.line is not None and self.line.open:
            self._give_turn()
        return self._execute_model(plan)

    def receive(self, frames: Any) -> Any:
        """In the input thread: not before the sending has been recorded, and while the sender waits."""
        self._may_receive.acquire()
        if self._free:
            self._may_receive.release()  # for good
        out = self._receive(frames)
        if self.line is not None:
            self.line.say(RECEIVED)
        return out

    def send(self, *arguments: Any) -> Any:
        """In the output thread, while the main thread waits."""
        frames = self._send(*arguments)
        self.num_sent += 1
        self._sent.release()
        return frames


class CallerSide:
    """The caller's side: `attach_inside` before the client's methods are watched, `attach_outside` after that."""

    def __init__(self, trace: str) -> None:
        try:
            folder = Path(_address_file(trace).read_text(encoding="utf-8"))
            self.clock = SharedClock(folder / CLOCK)
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(folder / SOCKET))
        except OSError as error:
            raise EngineDeadError(
                f"The engine core ended before its recording could begin ({error}). Make a new LLM."
            ) from error
        self.line = _Line(connection)
        self.has_turn = True
        self.idle = True  # the core has nothing to do
        self._changed = threading.Condition()
        self._to_receive = 0  # messages that the output thread may take in

    def attach_inside(self, client: Any) -> None:
        """What waits inside of its event: get_output."""
        self.client = client
        self._get_output, client.get_output = client.get_output, self.get_output

    def attach_outside(self, client: Any) -> None:
        """What waits outside of its event."""
        self._send_input, client.send_input = client.send_input, self.send_input
        self._receive, client.receive = client.receive, self.receive
        self._shutdown, client.shutdown = client.shutdown, self.shutdown

    def get_output(self) -> Any:
        """Wait for the next message: as long as there is none, it is the core's turn."""
        while self.line.open and self.client.outputs_queue.empty() and not self.idle:
            self._hand_over()
        return self._get_output()

    def send_input(self, request_type: Any, payload: Any) -> Any:
        """Send, and wait until the core's input thread has it."""
        if not self.has_turn:  # after an interruption
            self._wait_for_turn()
        frames = self._send_input(request_type, payload)
        self.line.say(SENT)
        self.line.hear()
        self.idle = False
        if request_type.name == "UTILITY":
            self._hand_over()
        return frames

    def receive(self, frames: Any) -> Any:
        """In the output thread: not before it is the caller's turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._to_receive or not self.line.open)
        out = self._receive(frames)
        with self._changed:
            self._to_receive -= 1
            self._changed.notify_all()
        return out

    def shutdown(self) -> None:
        """One more turn, in which the core finds out that all requests have ended; then it is free."""
        if self.line.open and self.has_turn and not self.idle:
            self._hand_over()
        self.line.say(BYE)
        self._let_go()
        self._shutdown()

    def _hand_over(self) -> None:
        self.line.say(GO)
        self.has_turn = False
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        words = self.line.hear().split()
        self.has_turn = True
        if not words:
            self._let_go()
            return
        num_sent, idle = map(int, words)
        self.idle = bool(idle)
        for _ in range(num_sent):
            with self._changed:
                self._to_receive += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._to_receive)

    def _let_go(self) -> None:
        with self._changed:
            self.line.open = False
            self._changed.notify_all()


def forget_meeting(trace: str) -> None:
    """Remove what a core that died before the two had met has left."""
    address = _address_file(trace)
    if address.exists():
        folder = Path(address.read_text(encoding="utf-8"))
        if folder.name.startswith(FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
        address.unlink()


def _address_file(trace: str) -> Path:
    return Path(f"{trace}.meet")
