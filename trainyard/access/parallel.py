"""Work in threads that never keep the process from ending."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start(function: Callable[..., T], *arguments: object) -> "Future[T]":
    """Runs a function in a daemon thread.

    An executor's threads are joined at exit: a request that hangs would hold the user's prompt.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # or a caller that gives up would cancel it

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
