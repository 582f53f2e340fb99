"""A page says when what it shows is over, in place of standing still.

Every page has a websocket for it. The first message holds the sentence, so that the page can say it when nobody is left
to send it: where the program ends the page it closes the websocket as going away (1001), where it is killed nobody
answers there any more (`farewell.html`).
"""

from __future__ import annotations

import json

from aiohttp import web

END = "/end"  # where pages find it


async def serve_end(page: web.WebSocketResponse, sentence: str) -> None:
    """Send the `sentence` that the page shows at the end, and wait for that.

    Args:
      page: the open websocket.
      sentence: what is over, as ``"The recording is over."``
    """
    await page.send_str(json.dumps({"over": sentence}))
    async for _ in page:  # a page has nothing to say here
        pass
