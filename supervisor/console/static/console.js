// Keeps the page current: the server draws it again, and what differs is put in place. Focus, scroll, ticked
// boxes, open details and typed text stay, because nodes that stand for the same thing are kept.

const STREAM = "/api/v1/stream";
const QUIET = 250; // milliseconds to wait for more news before asking
const BREAK = 1000; // at least that long between two questions
const LOG_BREAK = 2000; // where a log is drawn along
const PATIENCE = 15000; // then an answer does not come any more
const AGAIN = 5000; // before a stream that was refused is asked for again

const main = document.querySelector("main[data-live]");
const shown = document.querySelector("[data-live-state]");
const toggle = document.querySelector("[data-live-toggle]");

let skew = 0; // this clock minus the database's
let paused = false;
let asking = false;
let again = false;
let timer = 0;
let last = 0;
let lost = 0;
let drawn = Date.now();
let hush = null; // ends this page's listening

// ---- putting a newly drawn part in place

const key = (node) => (node.nodeType === 1 && node.id ? `${node.nodeName}#${node.id}` : "");
const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);

function morph(from, to) {
  if (from.nodeType !== 1) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !kept(from, name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value && !kept(from, name)) from.setAttribute(name, value);
  }
  const named = new Map([...from.childNodes].filter(key).map((node) => [key(node), node]));
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    let node = named.get(key(wanted));
    if (!node && place && !key(place) && alike(place, wanted)) node = place;
    if (node) {
      if (node === place) place = place.nextSibling;
      else from.insertBefore(node, place);
      morph(node, wanted);
    } else {
      from.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function kept(node, name) {
  if (name === "open") return node.nodeName === "DETAILS";
  if (name === "hidden") return node.hasAttribute("data-tick-all");
  return (name === "checked" || name === "selected" || name === "value") && ["INPUT", "OPTION", "TEXTAREA"].includes(node.nodeName) && node.type !== "hidden";
}

function put(page) {
  const fresh = page.querySelector("main[data-live]");
  if (!fresh) return false;
  drawn = Date.now();
  const log = main.querySelector("[data-follow]");
  const atEnd = log && log.scrollHeight - log.scrollTop - log.clientHeight < 8;
  morph(main, fresh);
  if (atEnd) log.scrollTop = log.scrollHeight;
  document.title = page.title;
  learnTime(page);
  refreshTicks();
  return true;
}

// ---- asking again

function say(state, words) {
  shown.hidden = false;
  if (shown.dataset.state !== state) shown.dataset.state = state;
  if (shown.textContent !== words) shown.textContent = words;
}

async function ask() {
  if (paused || document.hidden) return;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  last = Date.now();
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.redirected && new URL(answer.url).pathname === "/login") location.reload();
    if (!answer.ok) throw new Error(`the replica answers ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!paused && put(page)) {
      lost = 0;
      say("live", "live");
    }
  } catch {
    lost ||= Date.now();
    say("lost", `no answer for ${Math.max(1, Math.round((Date.now() - lost) / 1000))} s`);
  }
  asking = false;
  if (again) {
    again = false;
    soon();
  }
}

function soon() {
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    ask();
  }, Math.max(QUIET, last + (main.querySelector("[data-follow]") ? LOG_BREAK : BREAK) - Date.now()));
}

// ---- hearing of news
//
// A browser has six connections for all pages of a console, and a stream keeps one: so one page listens for
// all, whoever has the lock, and tells the others. A page that is not looked at neither listens nor asks.
// Without a secure origin there are no locks: then each page that is looked at has a stream of its own.

const others = new BroadcastChannel("tenure-news");
others.onmessage = () => hush && soon();

function follow() {
  const wanted = !paused && !document.hidden;
  if (wanted && !hush) hush = listen();
  if (!wanted && hush) {
    hush();
    hush = null;
  }
}

function listen() {
  const ending = new AbortController();
  const { signal } = ending;
  if (navigator.locks) navigator.locks.request("tenure-stream", { signal }, () => hear(signal)).catch(() => {}); // given up while waiting
  else hear(signal);
  return () => ending.abort();
}

function hear(signal) {
  return new Promise((done) => {
    let stream = null;
    const news = () => {
      soon();
      others.postMessage("");
    };
    const open = () => {
      if (signal.aborted) return;
      stream = new EventSource(STREAM);
      for (const name of ["message", "run", "leader", "workers", "reset"]) stream.addEventListener(name, news);
      // nobody heard what happened between the last drawing and now
      stream.addEventListener("hello", () => Date.now() - drawn > BREAK && news());
      stream.addEventListener("error", () => stream.readyState === EventSource.CLOSED && setTimeout(open, AGAIN));
    };
    signal.addEventListener("abort", () => {
      stream?.close();
      done();
    });
    if (signal.aborted) done();
    open();
  });
}

// ---- times that go on between two answers

function learnTime(page) {
  const now = Date.parse(page.documentElement.dataset.now ?? "");
  if (!Number.isNaN(now)) skew = Date.now() - now;
}

function words(seconds) {
  const size = Math.abs(seconds);
  for (const [unit, whole, smaller, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (size >= whole) {
      const rest = Math.floor((size % whole) / part);
      return `${Math.floor(size / whole)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
    }
  }
  return `${Math.floor(size)} s`;
}

function tick() {
  document.documentElement.toggleAttribute("data-stale", Boolean(lost));
  if (lost) {
    say("lost", `no answer for ${Math.round((Date.now() - lost) / 1000)} s`);
    return; // what is shown is as old as the last answer
  }
  for (const node of document.querySelectorAll("time[datetime]:not([data-clock])")) {
    const seconds = (Date.now() - skew - Date.parse(node.dateTime)) / 1000;
    const text = "lasting" in node.dataset ? words(Math.max(0, seconds)) : Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `${words(seconds)} ago` : `in ${words(seconds)}`;
    if (node.textContent !== text) node.textContent = text;
  }
  const passed = (Date.now() - drawn) / 1000;
  for (const node of document.querySelectorAll("[data-countdown]")) {
    const text = words(Math.max(0, Number(node.dataset.countdown) - passed));
    if (node.textContent !== text) node.textContent = text;
  }
}

// ---- choosing runs

function refreshTicks() {
  const all = document.querySelector("[data-tick-all]");
  if (!all) return;
  all.hidden = false;
  const boxes = [...document.querySelectorAll("input[name=run]")];
  const ticked = boxes.filter((box) => box.checked).length;
  all.checked = ticked > 0 && ticked === boxes.length;
  all.indeterminate = ticked > 0 && ticked < boxes.length;
  const said = document.querySelector("[data-ticked]");
  const text = ticked ? `${ticked} chosen:` : "Tick runs, then:";
  if (said && said.textContent !== text) said.textContent = text;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-tick-all]")) {
    for (const box of document.querySelectorAll("input[name=run]")) box.checked = event.target.checked;
  }
  refreshTicks();
});

// ---- begin

learnTime(document);
refreshTicks();
setInterval(tick, 1000);
const log = document.querySelector("[data-follow]");
if (log) log.scrollTop = log.scrollHeight;
// where the navigation is a strip, the place where one is may lie beyond its edge
document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
if (main) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.setAttribute("aria-pressed", String(!paused));
    if (paused) say("paused", "paused");
    else ask();
    follow();
  });
  document.addEventListener("visibilitychange", () => {
    follow();
    ask();
  });
  say("live", "live");
  follow();
  setInterval(() => {
    if (Date.now() - last >= 1000 * Number(main.dataset.live)) ask();
  }, 500);
}
