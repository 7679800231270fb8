// What tour.py does inside of a page.
({
  // what is on a page that must not be; what it says; where it leads
  look() {
    const found = [];
    const said = [document.title];
    const here = (text) => (URL.canParse(text, location.href) ? new URL(text, location.href) : { protocol: "none", href: text });
    const note = (what, node) => found.push(`${what}: ${node.outerHTML.slice(0, 300)}`);
    const say = (text, node) => {
      said.push(text);
      const unseen = text.replace(/[\n\t]/g, " ").match(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]|(?![\ufe00-\ufe0f])\p{Default_Ignorable_Code_Point}/u);
      if (unseen) note(`U+${unseen[0].codePointAt(0).toString(16)}, which cannot be seen`, node);
    };
    const strangers = [
      "iframe", "frame", "object", "embed", "base", "style", "audio", "video", "template", "math", "[http-equiv]", "[data-pwn]",
      "foreignObject", "animate", "set", "use", "image", "svg a", "svg script",
    ];
    const addresses = ["href", "src", "action", "formaction", "xlink:href", "data", "poster", "srcset", "ping", "cite"];
    const words = ["title", "alt", "aria-label", "placeholder", "label"];

    for (const node of document.querySelectorAll(strangers.join())) note("an element that no template has", node);
    for (const node of document.scripts) if (!here(node.src).pathname.startsWith("/static/")) note("a script", node);
    for (const node of document.images) if (!here(node.src).pathname.startsWith("/api/v1/")) note("a picture", node);
    for (const node of document.querySelectorAll("*")) {
      for (const { name, value } of node.attributes) {
        if (/^on|^style$|^srcdoc$|pwn/i.test(name)) note(`the attribute ${name}`, node);
        if (words.includes(name)) say(value, node);
        if (!addresses.includes(name)) continue;
        const { protocol, origin } = here(value);
        const mayLeave = node.nodeName === "A" && node.rel.includes("noopener");
        if (!["http:", "https:"].includes(protocol)) note("an address that runs", node);
        if (origin !== location.origin && !mayLeave) note("an address elsewhere", node);
      }
      if (["INPUT", "OPTION", "TEXTAREA"].includes(node.nodeName) && node.type !== "hidden") say(node.value, node);
    }
    const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) say(texts.currentNode.nodeValue, texts.currentNode.parentNode);
    if (window.__pwned) found.push(`it ran: ${window.__pwned}`);

    const links = [...document.querySelectorAll("main a[href]")].map((node) => here(node.getAttribute("href")).href);
    const fields = [...document.querySelectorAll("main form[method=get] [name]")].map((node) => [here(node.form.action).pathname, node.name]);
    return { found, said: said.join("\n"), links, fields };
  },

  // spoils a page that is drawn again by itself: its script has to put in place texts, attributes and whole rows
  wear() {
    const main = document.querySelector("main[data-live]");
    if (!main) return false;
    [...main.querySelectorAll("tr, li, .log > div, dl > div")].forEach((node, number) => number % 2 || node.remove());
    for (const node of main.querySelectorAll("*")) {
      for (const name of ["title", "alt", "aria-label"]) if (node.hasAttribute(name)) node.setAttribute(name, "worn");
    }
    for (const node of main.querySelectorAll("a")) node.href = "/worn";
    const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) if (texts.currentNode.nodeValue.trim()) texts.currentNode.nodeValue = "worn";
    main.dataset.worn = "";
    return true;
  },

  // does what a mistake of ours would do, and tells what came of it first
  insert(text) {
    return new Promise((done) => {
      document.addEventListener("securitypolicyviolation", () => done("refused"));
      Object.defineProperty(window, "__pwned", { set: () => done("ran") });
      document.querySelector("main").insertAdjacentHTML("beforeend", text);
    });
  },

  // the data of so many events of this name in a stream
  listen([path, name, most]) {
    return new Promise((done, fail) => {
      const data = [];
      const stream = new EventSource(path);
      for (const other of ["run", "message"]) stream.addEventListener(other, () => fail(`an event ${other} came`));
      stream.addEventListener("error", () => fail("the stream broke"));
      stream.addEventListener(name, (event) => {
        data.push(JSON.parse(event.data));
        if (data.length < most) return;
        stream.close();
        done(data);
      });
    });
  },
})
