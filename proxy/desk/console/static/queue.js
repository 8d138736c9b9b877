// The queue: j and k move, and what is new is told without moving a row under the reader's cursor.

export function moveInQueue(main, key) {
  const links = [...main.querySelectorAll("[data-queue] a")];
  if (!links.length || (key !== "j" && key !== "k")) return false;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (key === "j" ? 0 : links.length - 1) : at + (key === "j" ? 1 : -1);
  links[Math.min(Math.max(next, 0), links.length - 1)].focus();
  return true;
}

const NARROWED = ["queue", "team", "kind"];
const STAYS = ["approved", "edited", "escalated"]; // what happens to a reply that stays open

let events;

/** Counts reviews that came or went since the page was made. */
export function followQueue(main) {
  events?.close();
  events = undefined;
  const news = main.querySelector("[data-news]");
  const filters = new URLSearchParams(location.search);
  if (!news || filters.has("after")) return;
  const isOpen = (filters.get("state") || "open") === "open";
  const known = new Set([...main.querySelectorAll("[data-queue] li")].map((row) => row.dataset.id));
  const added = new Set();
  events = new EventSource(`/pinocchio/v1/events?heard=${news.dataset.news}`);
  const take = (message) => {
    const told = JSON.parse(message.data);
    const id = told.review_id;
    if (NARROWED.some((name) => filters.get(name) && filters.get(name) !== told[name])) return;
    if (told.event === "held") {
      if (isOpen && !known.has(id)) added.add(id);
    } else if (!STAYS.includes(told.event)) {
      added.delete(id);
      const row = [...main.querySelectorAll("[data-queue] li")].find((each) => each.dataset.id === id);
      if (isOpen) row?.classList.add("gone");
    }
    news.hidden = added.size === 0;
    news.textContent = `${added.size} new`;
  };
  events.addEventListener("review", take);
}

addEventListener("pagehide", () => events?.close());
