// The queue: j and k move, and what is new is told without moving a row under the reader's cursor.

export function moveInQueue(main, key) {
  const links = [...main.querySelectorAll("[data-queue] a")];
  if (!links.length || (key !== "j" && key !== "k")) return false;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (key === "j" ? 0 : links.length - 1) : at + (key === "j" ? 1 : -1);
  links[Math.min(Math.max(next, 0), links.length - 1)].focus();
  return true;
}

let events;

/** Counts reviews that came or went since the page was made. */
export function followQueue(main) {
  events?.close();
  events = undefined;
  const news = main.querySelector("[data-news]");
  if (!news || new URLSearchParams(location.search).has("after")) return;
  const list = main.querySelector("[data-queue]");
  const isOpen = !list || list.dataset.state === "open";
  const known = new Set([...main.querySelectorAll("[data-queue] li")].map((row) => row.dataset.id));
  const added = new Set();
  events = new EventSource("/pinocchio/v1/events");
  const take = (message) => {
    let told;
    try {
      told = JSON.parse(message.data);
    } catch {
      return;
    }
    const id = told.id ?? told.review_id;
    const state = told.state ?? told.event;
    if (typeof id !== "string" || typeof state !== "string") return;
    if (state === "open" || state === "held") {
      if (isOpen && !known.has(id)) added.add(id);
    } else {
      added.delete(id);
      const row = [...main.querySelectorAll("[data-queue] li")].find((each) => each.dataset.id === id);
      if (isOpen) row?.classList.add("gone");
    }
    news.hidden = added.size === 0;
    news.textContent = `${added.size} new`;
  };
  for (const kind of ["message", "review"]) events.addEventListener(kind, take);
}

addEventListener("pagehide", () => events?.close());
