// Keeps a decision from falling on a reply that nobody has looked at.
//
// A reply takes no decision before it has stood there for a second and all that matters of it has
// been in view: the beginning and the end of each choice and of each call. A button takes no click
// right after it has moved, and never the second click of a double click.

const PAUSE_MS = 1_000;
const STILL_MS = 400;
const LOOK_EVERY_MS = 100;
const MOVED_PX = 3;

let watched; // the page's open reply, if it has one

/** Watches over the reply in `main`; anew whenever it appears, as after an undo. */
export function watchReply(main) {
  clearInterval(watched?.timer);
  watched = undefined;
  const review = main.querySelector("[data-review]");
  const form = review?.querySelector("[data-decide]");
  if (!form) return;
  watched = { review, form, shownAt: performance.now(), unseen: partsOf(review), places: new Map() };
  watched.timer = setInterval(look, LOOK_EVERY_MS);
  look();
}

/** Why a control takes nothing now, as a sentence; nothing where it does. */
export function refusal(control, { isLabel = false } = {}) {
  if (!watched?.review.contains(control)) return undefined;
  look();
  if (watched.review.dataset.decided) return "This reply is decided; the next one is loading.";
  if (performance.now() - watched.shownAt < PAUSE_MS) return "A new reply has appeared. Look at it, then decide.";
  if (isLabel) return undefined;
  const [next] = watched.unseen;
  if (!next) return undefined;
  next.part.scrollIntoView({ block: "center" });
  return next.part.matches("a") ? "Part of this reply is not shown. Open all of it, then decide."
                                : "Part of this reply was out of sight. Read it, then decide.";
}

/** The same for a click by a pointer: the button must not have moved under it. */
export function clickRefusal(control, event) {
  if (event.detail > 1) return "A double click decides nothing. Click once.";
  const why = refusal(control);
  if (why || event.detail === 0) return why; // 0: by a key
  const movedAt = watched?.places.get(control)?.at ?? 0;
  return performance.now() - movedAt < STILL_MS ? "The button has just moved. Look again, then click." : undefined;
}

// What has to be in view: each part at its top, or at its bottom.
function partsOf(review) {
  const parts = new Set();
  for (const turn of review.querySelectorAll(".reply:not(.revised) .turn")) {
    parts.add({ part: turn.firstElementChild, edge: "top" });
    for (const call of turn.querySelectorAll(".call")) {
      parts.add({ part: call.firstElementChild, edge: "top" });
      parts.add({ part: call.querySelector(".arguments > div:last-child, pre") ?? call, edge: "bottom" });
    }
    parts.add({ part: turn.lastElementChild, edge: "bottom" });
    const more = turn.querySelector(".cut [data-hides]");
    if (more) parts.add({ part: more, edge: "never" });
  }
  return parts;
}

function look() {
  if (document.hidden || !document.contains(watched.review)) return;
  for (const each of watched.unseen) {
    const at = each.part.getBoundingClientRect()[each.edge];
    if (at >= 0 && at <= innerHeight) watched.unseen.delete(each);
  }
  const now = performance.now();
  for (const button of watched.form.querySelectorAll("button")) notePlace(button, now);
  const isReady = !watched.review.dataset.decided && now - watched.shownAt >= PAUSE_MS && !watched.unseen.size;
  for (const button of watched.form.querySelectorAll("button[name=verdict]")) {
    button.setAttribute("aria-disabled", String(!isReady));
    button.title = watched.unseen.size ? "A part of it is out of sight: scroll there first" : "";
  }
}

function notePlace(button, now) {
  const { left, top } = button.getBoundingClientRect();
  const scrolled = scrollY + button.closest(".panel").scrollTop;
  const before = watched.places.get(button);
  const isStill = before && Math.abs(before.left - left) < MOVED_PX && Math.abs(before.top - top) < MOVED_PX;
  if (isStill) return;
  const isScrolled = before && before.scrolled !== scrolled; // whoever scrolls knows that it moves
  const at = before ? (isScrolled ? before.at : now) : watched.shownAt;
  watched.places.set(button, { left, top, scrolled, at });
}

// Whoever comes back to a page sees its reply anew.
function begin() {
  if (watched && !document.hidden) watched.shownAt = performance.now();
}
document.addEventListener("visibilitychange", begin);
addEventListener("pageshow", begin);
