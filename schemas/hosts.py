"""The hosts of a database's URL. Several are the driver's own form, and not what a URL is elsewhere."""

import re
from typing import Final

_HOSTS: Final = re.compile(r"(?P<before>[^/?#]*//(?:[^/?#]*@)?)(?P<hosts>[^/?#]*)(?P<after>.*)", re.DOTALL)


def around_hosts(url: str) -> tuple[str, str, str]:
    """What stands before the hosts, the hosts, and what stands behind them."""
    found = _HOSTS.fullmatch(url)
    return (found["before"], found["hosts"], found["after"]) if found else (url, "", "")


def each_host(url: str) -> list[str]:
    """The URL with each of its hosts alone."""
    before, hosts, after = around_hosts(url)
    return [f"{before}{host}{after}" for host in hosts.split(",")]
