// Looks again at the address that is open, and puts what is new in the place of what was there. Makes no markup out of texts.
"use strict";
(() => {
  const SECONDS = 5; // between two looks, and longer where an answer takes long: the agent has better things to do
  const SHARE = 10;
  const PATIENCE_SECONDS = 30;
  if (!document.getElementById("live")) return;
  const status = document.getElementById("refresh");
  const words = document.createElement("span");
  const button = document.createElement("button");
  let held = false;
  let looking = false;
  let away = null;
  let timer = 0;

  const say = (text) => { if (words.textContent !== text) words.textContent = text; };

  const place = (element) => element && (element.id ? `#${CSS.escape(element.id)}`
    : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null);

  const isBusy = (live) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  };

  const show = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const before = document.getElementById("live");
    const after = next.getElementById("live");
    if (!before || !after || isBusy(before)) return;
    for (const open of before.querySelectorAll("details[open][id]")) {
      const same = after.querySelector(`#${CSS.escape(open.id)}`);
      if (same) same.open = true;
    }
    const focused = before.contains(document.activeElement) ? place(document.activeElement) : null;
    before.replaceWith(document.importNode(after, true));
    document.title = next.title;
    if (focused) document.getElementById("live").querySelector(focused)?.focus({ preventScroll: true });
  };

  const look = async () => {
    if (looking) return;
    looking = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000) });
      const text = await answer.text();
      if (answer.ok) { show(text); away = null; say(""); }
      else say(`The agent answers ${answer.status}; what is shown is older.`);
    } catch {
      away = away || new Date();
      say(`The agent does not answer since ${away.toLocaleTimeString()}; trying again.`);
    }
    looking = false;
    plan(Math.max(SECONDS * 1000, SHARE * (performance.now() - began)));
  };

  const plan = (milliseconds) => {
    clearTimeout(timer);
    if (!held && !document.hidden) timer = setTimeout(look, milliseconds);
  };

  button.type = "button";
  button.textContent = "Stop refreshing";
  button.addEventListener("click", () => {
    held = !held;
    button.textContent = held ? "Refresh again" : "Stop refreshing";
    plan(0);
  });
  document.addEventListener("visibilitychange", () => plan(0));
  words.setAttribute("role", "status");
  status.append(words, " ", button);
  plan(SECONDS * 1000);
})();

// Records as they are sent, one JSON object of texts per line: the newest first, those alone that contain what is asked for.
(() => {
  const place = document.getElementById("records");
  if (!place) return;
  const ROWS = 200;
  const AGAIN_MILLISECONDS = 1000; // between two requests: the agent has better things to do
  const body = place.querySelector("tbody");
  const filter = document.getElementById("filter");
  const words = document.createElement("span");
  const button = document.createElement("button");
  let held = false;
  let request = null;

  const fits = (row) => row.textContent.toLowerCase().includes(filter.value.toLowerCase());

  const add = (cells) => {
    const row = document.createElement("tr");
    for (const [title, text] of Object.entries(cells)) {
      const cell = document.createElement("td");
      cell.textContent = text;
      cell.dataset.label = title;
      row.append(cell);
    }
    row.hidden = !fits(row);
    body.prepend(row);
    while (body.rows.length > ROWS) body.deleteRow(-1);
  };

  const read = async () => {
    const answer = await fetch(`${location.pathname.replace(/[^/]*$/, "")}tap`, { cache: "no-store", redirect: "error", signal: request.signal });
    if (!answer.ok) throw new Error(`The agent answers ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    words.textContent = body.rows.length ? "" : "Waiting for records.";
    for (let left = "", next = await reader.read(); !next.done; next = await reader.read()) {
      const lines = (left + next.value).split("\n");
      left = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const cells = JSON.parse(line);
        if (cells.error) throw new Error(cells.error);
        words.textContent = "";
        add(cells);
      }
    }
  };

  const run = async () => {
    request = new AbortController();
    const mine = request;
    while (!mine.signal.aborted) {
      try { await read(); } catch (error) { if (!mine.signal.aborted) words.textContent = `${error.message}; trying again.`; }
      await new Promise((done) => setTimeout(done, AGAIN_MILLISECONDS));
    }
  };

  const plan = () => {
    request?.abort();
    request = null;
    if (!held && !document.hidden) run();
  };

  button.type = "button";
  button.textContent = "Pause";
  button.addEventListener("click", () => {
    held = !held;
    button.textContent = held ? "Go on" : "Pause";
    words.textContent = "";
    plan();
  });
  filter.addEventListener("input", () => { for (const row of body.rows) row.hidden = !fits(row); });
  filter.form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("visibilitychange", plan);
  words.setAttribute("role", "status");
  filter.form.append(button, words);
  plan();
})();
