"""What happens when a worker is cut off, second by second, drawn from the default timings. Not a test."""

from typing import Final

from supervisor.config import Timings
from tests.docs.pen import Pen

LEFT: Final = 150
SECOND: Final = 18.5  # pixels
WORKER, SERVER, AXIS = 110, 230, 330
CROSS: Final = "\N{MULTIPLICATION SIGN}"


def draw_silence(timings: Timings | None = None) -> str:
    times = timings or Timings()
    pen = Pen("A worker is cut off: who does what, and when", 940, 400)
    pen.text(
        (20, 28), "The last beat that was answered was sent at 0. Then the worker is cut off.", kind="bold"
    )
    pen.text((LEFT - 16, WORKER + 5), "worker", kind="bold", anchor="end")
    pen.text((LEFT - 16, SERVER + 5), "leader, database", kind="bold", anchor="end")
    _draw_worker(pen, times)
    _draw_server(pen, times)
    _draw_axis(pen, times)
    return pen.svg()


def at(seconds: float) -> float:
    return round(LEFT + seconds * SECOND, 1)


def _draw_worker(pen: Pen, times: Timings) -> None:
    stop, dead = times.self_stop, times.self_stop + times.kill
    pen.box((at(0), WORKER - 20), (stop * SECOND, 40), ["its work goes on"], hue="worker")
    pen.box((at(stop), WORKER - 20), (times.kill * SECOND, 40), ["k"], hue="stop", dashed=True)
    beat = times.heartbeat
    while beat < stop:
        pen.text((at(beat), WORKER - 28), CROSS, hue="stop", anchor="middle")
        beat += times.heartbeat
    pen.text(
        (at(0), WORKER - 42),
        f"a beat every H = {times.heartbeat:g} s, none answered",
        kind="small",
        hue="stop",
    )
    pen.text(
        (at(stop), WORKER - 42), f"S = {stop:g}: it stops its work by itself", kind="small", hue="worker"
    )
    pen.text(
        (at(dead) + 8, WORKER - 4),
        f"S + k = {dead:g}: the kernel ends the process,",
        kind="small",
        hue="stop",
    )
    pen.text((at(dead) + 8, WORKER + 12), "were it frozen or stuck", kind="small", hue="stop")


def _draw_server(pen: Pen, times: Timings) -> None:
    silent, bound = times.confirm_after, times.stop_bound
    pen.box((at(0), SERVER - 20), (silent * SECOND, 40), ["RUNNING"], hue="ink")
    size = ((bound - silent) * SECOND, 40)
    pen.box((at(silent), SERVER - 20), size, ["RUNNING, CONFIRMING: nothing is reassigned"], hue="both")
    pen.box((at(bound), SERVER - 20), (times.confirm_after * SECOND, 40), ["TIMED_OUT"], hue="leader")
    pen.text((at(silent), SERVER - 30), f"C = {silent:g}: silent by two clocks", kind="small", hue="both")
    pen.text(
        (at(silent), SERVER + 38),
        "a beat that is answered before D: the same attempt goes on",
        kind="small",
        hue="worker",
    )
    pen.text((at(bound), SERVER - 30), f"D = {bound:g}: the deadline", kind="small", hue="leader")
    pen.text((at(bound), SERVER + 38), "when the leader itself has", kind="small", hue="leader")
    pen.text((at(bound), SERVER + 54), "watched D of silence; then", kind="small", hue="leader")
    pen.text((at(bound), SERVER + 70), "the next attempt is due", kind="small", hue="leader")


def _draw_axis(pen: Pen, times: Timings) -> None:
    dead, bound = times.self_stop + times.kill, times.stop_bound
    for moment in (0, times.confirm_after, times.self_stop, dead, bound):
        pen.arrow([(at(moment), AXIS - 8), (at(moment), AXIS + 8)], hue="faint", head=False)
        pen.text((at(moment), AXIS + 24), f"{moment:g} s", kind="small", hue="faint", anchor="middle")
    pen.arrow([(LEFT, AXIS), (at(bound + times.confirm_after), AXIS)], hue="faint")
    pen.arrow([(at(dead), AXIS + 40), (at(bound), AXIS + 40)], hue="stop", head=False)
    pen.text(
        (at((dead + bound) / 2), AXIS + 57),
        f"{bound - dead:g} s in which nobody executes: two beats, and clocks that differ by 2 %",
        kind="small",
        hue="stop",
        anchor="middle",
    )
