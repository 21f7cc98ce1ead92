"""The waiting queue: who is looked at first. fcfs is a deque, priority a heap."""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator

from minivllm.config import SchedulingPolicy
from minivllm.core.request import Request


class RequestQueue(ABC):
    """vLLM: v1/core/sched/request_queue.py::RequestQueue"""

    @abstractmethod
    def add_request(self, request: Request) -> None:
        """Put a request that has just arrived."""

    @abstractmethod
    def prepend_request(self, request: Request) -> None:
        """Put back a request that was preempted."""

    @abstractmethod
    def peek_request(self) -> Request:
        """The request that goes first; it stays in the queue."""

    @abstractmethod
    def pop_request(self) -> Request:
        """Take the request that goes first."""

    @abstractmethod
    def remove_request(self, request: Request) -> None:
        """Take this request, wherever it stands."""

    @abstractmethod
    def remove_requests(self, requests: Collection[Request]) -> None:
        """Take these requests, in one walk through the queue. Raises ValueError if one of them is not in it."""

    @abstractmethod
    def __iter__(self) -> Iterator[Request]:
        """All requests in the order in which they would be popped."""

    @abstractmethod
    def __len__(self) -> int: ...


class FCFSRequestQueue(RequestQueue):
    """First come, first served; a preempted request goes to the front.

    vLLM: v1/core/sched/request_queue.py::FCFSRequestQueue
    """

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()

    def add_request(self, request: Request) -> None:
        self._queue.append(request)

    def prepend_request(self, request: Request) -> None:
        self._queue.appendleft(request)

    def peek_request(self) -> Request:
        return self._queue[0]

    def pop_request(self) -> Request:
        return self._queue.popleft()

    def remove_request(self, request: Request) -> None:
        self._queue.remove(request)

    def remove_requests(self, requests: Collection[Request]) -> None:
        if requests:
            self._queue = deque(_without(self._queue, requests))

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def __len__(self) -> int:
        return len(self._queue)


class PriorityRequestQueue(RequestQueue):
    """Smallest (priority, arrival_time, request_id) first; being preempted gives no better place.

    vLLM: v1/core/sched/request_queue.py::PriorityRequestQueue
    """

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def add_request(self, request: Request) -> None:
        heapq.heappush(self._heap, request)

    def prepend_request(self, request: Request) -> None:
        self.add_request(request)

    def peek_request(self) -> Request:
        return self._heap[0]

    def pop_request(self) -> Request:
        return heapq.heappop(self._heap)

    def remove_request(self, request: Request) -> None:
        self.remove_requests([request])

    def remove_requests(self, requests: Collection[Request]) -> None:
        if requests:
            self._heap = _without(self._heap, requests)
            heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._heap))

    def __len__(self) -> int:
        return len(self._heap)


def _without(queue: Collection[Request], requests: Collection[Request]) -> list[Request]:
    gone = set(requests)
    left = [request for request in queue if request not in gone]
    if len(left) + len(gone) != len(queue):
        raise ValueError(f"{', '.join(map(repr, gone.difference(queue)))} is not in the queue")
    return left


def create_request_queue(policy: SchedulingPolicy) -> RequestQueue:
    """vLLM: v1/core/sched/request_queue.py::create_request_queue"""
    return PriorityRequestQueue() if policy == "priority" else FCFSRequestQueue()
