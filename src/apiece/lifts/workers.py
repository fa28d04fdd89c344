"""Clients in worker processes: a lift of the exact class for where the interpreter's lock costs more than messages.

One of our threads speaks to each worker. A worker receives the operation once a run and `Shared` once a round. The
samples that the clients of a run share lie in files that every worker maps; a message only says where. The files have
no name: workers receive their handles, and nothing of them is left, however the run ends.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from mmap import ACCESS_COPY, mmap
from multiprocessing.reduction import recv_handle, send_handle
from typing import IO, Any

import cloudpickle
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from apiece.engine.stepping import Loop
from apiece.errors import tried
from apiece.lifts.lift import Make, Threaded
from apiece.system import processes, signals
from apiece.system.allocator import keep_freed
from apiece.system.device import to_numpy

PRELOAD = ("apiece.lifts.workers", "apiece.engine.federated", "apiece.networks.models", "numpy.random", "torch")
LARGE = 1 << 20  # bytes; a pool of many clients' samples of this size or more is put into a file
PART = 1024  # samples that are written at once
UNSENT = "lift='processes' cannot send the algorithm, the model, the loss and the metrics to its workers"
INSTEAD = "; take lift='threaded', or make that object inside the function that uses it"

for _part in (torch.classes, torch.ops, torch.backends):  # a function that says `.classes` takes the first along
    copyreg.pickle(type(_part), lambda module: (import_module, (module.__name__,)))


class Processes(Threaded):
    """`workers` processes, each with one thread. A process that ends, or does not answer for `patience` seconds, is
    replaced; raises processes.Lost where the new one is lost at the same work.
    """

    way = "side by side in processes"

    def __init__(self, workers: int, patience: float = processes.PATIENCE):
        super().__init__(workers)
        self._processes = processes.Pool(PRELOAD, serve, patience)
        self._mine, self._shelf = threading.local(), Shelf()
        self._operation: tuple[Callable | None, bytes] = (None, b"")

    def run(self, operation: Callable, shared: Any, tasks: Iterable[Make]) -> Iterator[Any]:
        if self._operation[0] != operation:
            with tried(UNSENT, lambda error: INSTEAD):
                self._operation = operation, cloudpickle.dumps(operation)
        told = Told(self._operation[1], shared)

        def call(stepping: Any, shared: Any, each: Any) -> Any:
            return self._processes.twice("a worker process", lambda: self._call(told, each))

        return super().run(call, shared, tasks)

    def close(self) -> None:
        """End the workers at once, and then the threads."""
        self._processes.close()
        super().close()

    def pids(self) -> list[int]:
        """The numbers of the worker processes that run."""
        return self._processes.pids()

    def _call(self, told: Told, each: Any) -> Any:
        """The reply of this thread's worker, or of a new one, for a client."""
        if not hasattr(self._mine, "worker"):
            self._mine.worker = Worker(self._processes, self._shelf)
        try:
            return self._mine.worker.call(told, each)
        except processes.Lost:
            del self._mine.worker
            raise


class Told:
    """What a worker needs before it works on a client: the pickled operation, and the values that a round shares."""

    def __init__(self, operation: bytes, shared: Any):
        self.operation, self.shared = operation, shared


class Worker:
    """One process, and what it last received."""

    def __init__(self, processes: processes.Pool, shelf: Shelf):
        self.processes, self.live = processes, processes.begin()
        self.shelf, self.told = shelf, Told(b"", None)
        self.handed = 0  # how many of the shelf's files it has received

    def call(self, told: Told, each: Any) -> Any:
        """The reply for one client; raises the worker's error, or processes.Lost where there is no reply."""
        operation = told.operation if told.operation != self.told.operation else None
        shared = (told.shared,) if told is not self.told else ()
        message = dumps((operation, shared, each), self.shelf)
        with self.processes.speaking(self.live):
            self._hand_over()
            self.live.pipe.send_bytes(message)
            received = self.live.pipe.recv_bytes()
        self.told = told
        done, answer = pickle.loads(received)
        if not done:
            raise answer
        return answer

    def _hand_over(self) -> None:
        """Send the files that are new, each after an empty message."""
        for file in self.shelf.files[self.handed :]:
            self.live.pipe.send_bytes(b"")
            send_handle(self.live.pipe, file.fileno(), self.live.process.pid)
            self.handed += 1


class Shelf:
    """Pools in files, each written once, for workers to map; the files are closed with the shelf."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), dict[int, tuple[Tensor, Any]]()
        self.files: list[IO[bytes]] = []

    def place(self, tensor: Tensor) -> tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]:
        """Where the tensor lies: the number of its file, its type, shape and strides."""
        with self._lock:
            if id(tensor) not in self._known:
                file, like = tempfile.TemporaryFile(), torch.empty_like(tensor, device="meta")  # dense
                weakref.finalize(self, file.close)
                for part in tensor.split(PART) if like.stride(0) == max(like.stride()) else [tensor]:
                    to_numpy(_known(part.clone().as_strided((part.numel(),), (1,)))).tofile(file)
                where = len(self.files), like.dtype, tuple(like.shape), like.stride()
                self.files.append(file)
                self._known[id(tensor)] = tensor, where  # keeps the tensor, and so its id
            return self._known[id(tensor)][1]


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: Any, shelf: Shelf | None, pool: Iterable[Tensor]):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shelf, self._pool = shelf, {id(leaf) for leaf in pool}

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not Tensor:
            return super().reducer_override(obj)
        if self._shelf is not None and id(obj) in self._pool:
            return _mapped, self._shelf.place(obj)
        return _tensor, (to_numpy(_known(obj.detach())), obj.dtype)


def dumps(message: Any, shelf: Shelf | None = None) -> bytes:
    """The bytes of a tree of tensors; with a shelf, of (operation, shared, client), whose pool stays on the shelf."""
    file = io.BytesIO()
    samples = message[-1].samples if shelf is not None else None
    pool = [leaf for leaf in tree_leaves(samples.pool) if _of_many(leaf, samples)] if samples is not None else []
    _Pickler(file, shelf, pool).dump(message)
    return file.getvalue()  # without a copy


def _of_many(leaf: Tensor, samples: Any) -> bool:
    return leaf.nbytes >= LARGE and len(leaf) > 2 * len(samples.index)


def _known(tensor: Tensor) -> Tensor:
    """The tensor, as whole numbers of its width where NumPy does not know its type, as it does not bfloat16."""
    known = not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)
    return tensor if known else tensor.view({1: torch.uint8, 2: torch.int16}[tensor.itemsize])


def _tensor(array: Any, dtype: torch.dtype) -> Tensor:
    own = torch.from_numpy(array).clone()  # into torch's own memory: the last bit can depend on the alignment
    return own.view(dtype)


_maps: list[mmap] = []  # in a worker, the files that it received


def _mapped(number: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(_maps[number], dtype=dtype).as_strided(shape, stride)


def _received(pipe: Any) -> bytes:
    """The next message; files that arrive before it are mapped."""
    while not (message := pipe.recv_bytes()):
        handle = recv_handle(pipe)
        _maps.append(mmap(handle, 0, access=ACCESS_COPY))
        os.close(handle)
    return message


def _nothing(stepping: Any, shared: Any, each: Any) -> Any:
    raise AssertionError("a worker receives the operation first")


def serve(pipe: Any) -> None:
    """A worker: answer messages with clients' replies until the other side ends."""
    signals.ignore()  # the run ends its workers
    torch.set_num_threads(1)
    keep_freed()
    stepping, known, shared = Loop(), _nothing, None
    with suppress(EOFError, OSError):  # the other side has ended, perhaps during our work
        while True:
            operation, told, each = pickle.loads(_received(pipe))
            try:
                known = pickle.loads(operation) if operation is not None else known
                (shared,) = told or (shared,)
                answer = True, known(stepping, shared, each)
            except Exception as error:
                error.add_note(f"in a worker process:\n{traceback.format_exc()}")
                answer = False, error
            pipe.send_bytes(dumps(answer))
