"""A page of viser that is reached through the auth proxy alone: on loopback with a token, elsewhere with TLS too.

Every page has a websocket for the end of the session. The first message holds the sentence, so that the page can show
it when the program is gone: one that ends the page closes the websocket as going away (1001), one that was killed does
not answer any more (`session_end.html`).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import secrets
from collections.abc import Iterator
from http.client import HTTPConnection
from types import MappingProxyType

import rich
import viser
from aiohttp import web

from hardware.teleop.browser import Place
from hardware.teleop.browser.access import is_loopback
from hardware.teleop.browser.auth_proxy import AuthProxy, Talks, overlay, with_overlays
from hardware.teleop.browser.certificate import addresses, fingerprint, own_certificate, server_context
from hardware.teleop.browser.connection_limits import HEADER, behind

END = "/end"  # where pages find it


async def serve_end(page: web.WebSocketResponse, sentence: str) -> None:
    """Send the `sentence` that the page shows at the end, as ``"The recording is over."``, and wait for that."""
    await page.send_str(json.dumps({"over": sentence}))
    async for _ in page:  # a page has nothing to say here
        pass


log = logging.getLogger(__name__)


class GuardedViser:
    """viser, started on loopback behind a key that only its proxy has.

    Attributes:
      server: what to put on the page.
      url: the address to open, with its token; empty before `serve`.
      notice: what to print in a terminal after `serve`: addresses, fingerprint, QR code. Not for logs: has the token.
    """

    def __init__(self) -> None:
        self._key = secrets.token_urlsafe(32)
        with _quiet(), behind(self._key):
            self.server = _UnsharedViser(host="127.0.0.1", port=0, label="robolearn", verbose=False)
        self.url = self.notice = ""
        self.proxy: AuthProxy | None = None

    @property
    def address(self) -> tuple[str, int, str]:
        """Host and port that viser listens on, and the key that it demands."""
        return self.server.get_host(), self.server.get_port(), self._key

    def serve(
        self,
        place: Place,
        *,
        risk: str,
        own: str = "",
        sockets: Talks = MappingProxyType({}),
        over: str = "The recording is over.",
    ) -> None:
        """Let in requests with the token.

        Args:
          own: HTML that is put into the page, beside that of pictures which grow at a click.
          sockets: path → server of the websockets there, beside viser's own.
          risk: what a holder of the address can do; a sentence of the notice beyond loopback.
          over: what the page says when it has lost its program, or was closed.

        Raises:
          BadInput: the address cannot be listened on, or the certificate cannot be used.
        """
        tls, proof = None, ""
        if not is_loopback(place.host):
            certificate = place.certificate or own_certificate(place.folder)
            tls, proof = server_context(certificate, place.key), fingerprint(certificate)
        shared = (overlay("hardware.teleop.browser", f"{name}.html") for name in ("scheme", "pictures", "session_end"))
        sockets = {**sockets, END: lambda socket: serve_end(socket, over)}
        html = with_overlays(_fetch(*self.address), *shared, own)
        proxy = AuthProxy(html, self.address, place, tls, sockets)
        proxy.open()
        self.proxy, access = proxy, proxy.access
        everywhere = place.host in ("", "0.0.0.0", "::")
        names = [f"[{h}]" if ":" in h else h for h in ((addresses() if everywhere else [place.host]) or ["127.0.0.1"])]
        urls = [f"{access.scheme}://{name}:{proxy.port}/?token={access.token}" for name in names]
        self.url = urls[0]
        lines = [f"Open {self.url}"]
        if proof:
            lines += [f"  or {url}" for url in urls[1:3]]
            lines += ["The browser will warn once: the certificate is our own. Its SHA-256 fingerprint:", f"  {proof}"]
            lines += [risk, _qr(self.url)]
        self.notice = "\n".join(lines)

    def invitation(self) -> str:
        """The address to start a browser with: it counts once, see `access`; empty before `serve`."""
        return "" if self.proxy is None else f"{self.url.partition('?')[0]}?token={self.proxy.access.invite()}"

    def close(self) -> None:
        """Disconnect everybody, their pages say what is over; more than once is no fault."""
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None
        with _quiet():
            self.server.stop()


class _UnsharedViser(viser.ViserServer):
    """Without viser's tunnel to the open Internet, which any client could ask for."""

    def request_share_url(self, verbose: bool = True) -> str | None:
        log.warning("a page requested to be shared on the Internet; refused")
        return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """viser prints its address, and that it stopped, through rich's console, with `verbose=False` too."""
    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _fetch(host: str, port: int, key: str) -> str:
    """viser's page, from viser itself."""
    with contextlib.closing(HTTPConnection(host, port, timeout=10.0)) as connection:
        connection.request("GET", "/", headers={HEADER: key})
        return connection.getresponse().read().decode()


def _qr(url: str) -> str:
    """A QR code of half blocks, or nothing without the library."""
    out = io.StringIO()
    with contextlib.suppress(ImportError):
        import segno

        segno.make(url, error="l", micro=False).terminal(out=out, border=2, compact=True)
    return out.getvalue()
