"""K9: the sink lets nothing old through."""

from collections.abc import Iterator

from supervisor.verify.history import History
from supervisor.verify.records import Offer
from supervisor.verify.report import Finding, short


def check(history: History) -> Iterator[Finding]:
    given = {
        (move.run, move.claim): (move.attempt, move.epoch)
        for move in history.moves()
        if move.state == "RUNNING" and move.before == "ASSIGNED"
    }
    # a timeline that was lost gave out tokens too
    for move in history.lost.moves() if history.lost is not None else ():
        if move.state == "RUNNING" and move.before == "ASSIGNED":
            given.setdefault((move.run, move.claim), (move.attempt, move.epoch))
    newest: dict[int, Offer] = {}
    before: Offer | None = None
    for offer in history.offers or ():
        if before is not None and offer.seq <= before.seq:
            yield Finding("K9", "the sink's own order is not one", (_line(before), _line(offer)))
        before = offer
        if not offer.accepted:
            continue
        token = given.get((offer.run, offer.claim))
        if token is None:
            yield Finding(
                "K9", f"an accepted claim {short(offer.claim)} that was never started", (_line(offer),)
            )
        elif token != (offer.attempt, offer.epoch):
            text = f"an accepted token with attempt and epoch {token} in the history"
            yield Finding("K9", text, (_line(offer),))
        last = newest.get(offer.root)
        if last is not None and (offer.epoch, offer.attempt) < (last.epoch, last.attempt):
            text = f"root {offer.root}: an older token was accepted after a newer one"
            yield Finding("K9", text, (_line(last), _line(offer)))
        else:
            newest[offer.root] = offer
    history.figures["offers_accepted"] = sum(offer.accepted for offer in history.offers or ())
    history.figures["offers_refused"] = sum(not offer.accepted for offer in history.offers or ())


def _line(offer: Offer) -> str:
    verdict = "accepted" if offer.accepted else f"refused ({offer.reason})"
    return (
        f"#{offer.seq} at {offer.t:.3f} run {offer.run} attempt {offer.attempt} epoch {offer.epoch}"
        f" claim {short(offer.claim)} {verdict}"
    )
