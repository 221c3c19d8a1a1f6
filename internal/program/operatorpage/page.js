// Keeps the page up to date: what changed is put in place of what was, and nothing
// moves while somebody selects text, pauses it or looks elsewhere.
(() => {
  "use strict";
  const period = 5000;
  const stale = document.getElementById("stale");
  const pause = document.getElementById("pause");
  const pattern = document.getElementById("pattern");
  let paused = false;
  let last = new Date();

  const swap = (old, fresh) => {
    if (!fresh || fresh.innerHTML === old.innerHTML) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = new Map([...old.querySelectorAll(".scroll")].map((e) => [e.id, e.scrollLeft]));
    old.replaceChildren(...fresh.childNodes);
    for (const e of old.querySelectorAll(".scroll")) e.scrollLeft = scrolled.get(e.id) || 0;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  // What is typed hides the rows that do not have it.
  const filter = () => {
    const rows = document.querySelectorAll("[data-row]");
    if (!pattern) return;
    document.getElementById("filter").hidden = rows.length === 0;
    const want = pattern.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(want);
  };

  const update = async () => {
    if (paused || document.hidden || !getSelection().isCollapsed) return;
    try {
      const answer = await fetch(location.pathname + location.search, { cache: "no-store", signal: AbortSignal.timeout(period) });
      if (!answer.ok) throw new Error(answer.statusText);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) swap(old, next.getElementById(old.id));
      filter();
      document.title = next.title;
      last = new Date();
      stale.textContent = "";
    } catch {
      const text = "Nothing has answered since " + last.toISOString().slice(0, 19).replace("T", " ") + " UTC.";
      if (stale.textContent !== text) stale.textContent = text;
    }
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    update();
  });
  pattern?.addEventListener("input", filter);
  filter();
  document.addEventListener("visibilitychange", update);
  setInterval(update, period);
})();
