"""Cells in a kernel of a real Jupyter server, as a browser has them run."""

import asyncio
from collections.abc import Sequence

import aiohttp


def run(url: str, token: str, *cells: str) -> list[str]:
    """Run cells in a new kernel, which then ends; return what each has printed."""
    return asyncio.run(_run(url, token, cells))


async def _run(url: str, token: str, cells: Sequence[str]) -> list[str]:
    headers = {"Authorization": f"token {token}"}
    async with aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:
        async with session.post(f"{url}/api/kernels", json={"path": "docs"}) as made:
            kernel = f"{url}/api/kernels/{(await made.json())['id']}"
        said = []
        async with session.ws_connect(f"{kernel}/channels") as channels:
            for number, cell in enumerate(cells):
                header = {"msg_id": str(number), "msg_type": "execute_request", "version": "5.3"}
                asked = {"header": header | {"username": "", "session": "cells"}, "metadata": {}}
                asked |= {"parent_header": {}, "channel": "shell", "content": {"code": cell}}
                await channels.send_json(asked)
                said.append("")
                async for message in channels:
                    told = message.json()
                    if told["parent_header"].get("msg_id") == str(number):
                        if told["content"].get("execution_state") == "idle":
                            break
                        said[-1] += str(told["content"].get("text") or "")
                        assert told["msg_type"] != "error", told
        await session.delete(kernel)
    return said
